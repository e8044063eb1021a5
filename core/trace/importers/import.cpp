// SPDX-License-Identifier: Apache-2.0
#include "core/trace/importers/import.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "core/base/version.h"
#include "core/process/syscalls.h"
#include "core/trace/importers/log_text.h"
#include "core/trace/input_kind.h"
#include "core/trace/line_source.h"
#include "core/trace/writer.h"

namespace whomap {
namespace {

struct KindName {
  LogKind kind;
  std::string_view name;
  InputKind looks_like;
};
constexpr std::array kinds{KindName{LogKind::gdb_log, "gdb-log", InputKind::gdb_log},
                           KindName{LogKind::bpftrace, "bpftrace", InputKind::bpftrace},
                           KindName{LogKind::perf_script, "perf-script", InputKind::perf_script},
                           KindName{LogKind::strace, "strace", InputKind::strace}};

const KindName& entry_of(LogKind kind) {
  return *std::find_if(kinds.begin(), kinds.end(), [&](const KindName& each) { return each.kind == kind; });
}

/// Equal stacks have equal keys.
std::string key_of(const std::vector<Frame>& frames, const std::optional<std::string>& truncated) {
  std::string key;
  for (const Frame& frame : frames) {
    key.append(frame.module).append("\n").append(frame.function.value_or(""));
    key.append(reinterpret_cast<const char*>(&frame.offset), sizeof frame.offset);
    key += frame.inlined ? 'i' : '-';
    if (frame.line) key += fmt::format("{}:{}", frame.file.value_or(""), *frame.line);
    key += '\n';
  }
  return key + truncated.value_or("");
}

/// Counts and a few line numbers of one problem.
struct Counted {
  std::uint64_t count = 0;
  std::vector<std::uint64_t> lines;  ///< the first ones
};

class Importer : public LogSink {
 public:
  explicit Importer(const ImportOptions& options) : options_(options) {}

  Result<ImportSummary> run(LineSource source, const std::string& name) {
    if (auto kind = check_kind(source, name); !kind) return tl::make_unexpected(kind.error());
    const auto parser = make_log_parser(options_.kind, *this);
    for (;;) {
      const auto line = source.next();
      if (!line) return tl::make_unexpected(line.error());
      if (!*line) break;
      if ((*line)->too_long)
        problem(LogProblem::unreadable, source.line_number());
      else
        parser->line((*line)->text, source.line_number());
      if (output_) return tl::make_unexpected(*output_);
    }
    parser->end();
    summary_.lines = source.line_number();
    return finish(name);
  }

  void call(LoggedCall call) override {
    if (output_) return;
    if (!plausible_result(call)) return problem(LogProblem::mispaired, call.exit_ns / 1000);
    if (!chosen_) chosen_ = options_.pid.value_or(call.pid);
    // A log that names no process is of one.
    if (call.pid != *chosen_ && (call.pid != 0 || !options_.pid))
      return problem(LogProblem::other_process, 0);
    if (!writer_) {
      if (auto made = create(call); !made) {
        output_ = made.error();
        return;
      }
    }
    TraceEvent event;
    event.call = {call.enter_ns, call.exit_ns, call.tid, call.number, call.arguments, call.result, 0};
    event.stack = stack_of(call);
    keep(writer_->event(event));
    ++summary_.events;
    const bool failed = call.number == nr_brk ? call.arguments[0] != 0 && call.result != call.arguments[0]
                                              : is_syscall_error(call.result);
    if (failed) ++summary_.failed_calls;
    last_ns_ = std::max(last_ns_, call.exit_ns);
    threads_.insert(call.tid);
  }

  void problem(LogProblem problem, std::uint64_t line) override {
    Counted& counted = problems_[static_cast<std::size_t>(problem)];
    ++counted.count;
    constexpr std::size_t shown = 5;
    if (line != 0 && counted.lines.size() < shown) counted.lines.push_back(line);
  }
  void lost(std::uint64_t count) override { summary_.lost += count; }
  void note(const std::string& text) override { notes_.push_back(text); }

 private:
  static constexpr std::int64_t nr_brk = 12;

  Result<void> check_kind(LineSource& source, const std::string& name) {
    const auto start = source.peek();
    if (!start) return tl::make_unexpected(start.error());
    const InputKind found = input_kind(*start);
    const KindName& wanted = entry_of(options_.kind);
    // Logs begin with all sorts of text: only what is surely something else is refused by its looks.
    if (found == wanted.looks_like || found == InputKind::text) return {};
    const auto other = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const KindName& each) { return each.looks_like == found; });
    std::string remedy = fmt::format("--from {} reads {}", wanted.name, describe(wanted.looks_like));
    if (other != kinds.end()) remedy = fmt::format("import it with --from {}", other->name);
    if (found == InputKind::whomap_trace) remedy = "it needs no import: whomap match reads it";
    if (found == InputKind::perf_data) remedy = "import the output of 'perf script -i FILE'";
    return fail(
        ErrorCode::input_kind,
        fmt::format("{} is not {}, it looks like {}", name, describe(wanted.looks_like), describe(found)),
        remedy);
  }

  Result<void> create(const LoggedCall& first) {
    TraceHeader header;
    header.engine = fmt::format("import:{}", entry_of(options_.kind).name);
    header.tool_version = WHOMAP_VERSION;
    header.clock = first.timed ? log_clock : order_clock;
    header.start_ns = first.enter_ns;
    header.target.pid = *chosen_;
    auto writer = TraceWriter::create(options_.output, options_.overwrite, header);
    if (!writer) return tl::make_unexpected(writer.error());
    writer_.emplace(std::move(*writer));
    return {};
  }

  std::uint32_t stack_of(LoggedCall& call) {
    const auto [at, fresh] =
        stacks_.try_emplace(key_of(call.frames, call.truncated), static_cast<std::uint32_t>(stacks_.size()));
    if (fresh) keep(writer_->stack({at->second, std::move(call.frames), std::move(call.truncated)}));
    return at->second;
  }

  void keep(const Result<void>& written) {
    if (!written && !output_) output_ = written.error();
  }

  [[nodiscard]] const Counted& counted(LogProblem problem) const {
    return problems_[static_cast<std::size_t>(problem)];
  }

  void add_problem_note(LogProblem problem, std::string_view what) {
    const Counted& each = counted(problem);
    if (each.count == 0) return;
    std::string where;
    for (const std::uint64_t line : each.lines) where += fmt::format("{}{}", where.empty() ? "" : ", ", line);
    if (each.count > each.lines.size() && !where.empty()) where += ", ...";
    notes_.push_back(
        fmt::format("{} {}{}", each.count, what, where.empty() ? "" : fmt::format(" (line {})", where)));
  }

  Result<ImportSummary> finish(const std::string& name) {
    if (output_) return tl::make_unexpected(*output_);
    if (!writer_)
      return fail(ErrorCode::input_kind,
                  fmt::format("{} holds no call that maps memory{}", name,
                              counted(LogProblem::unreadable).count == 0
                                  ? ""
                                  : fmt::format(", and {} of its {} lines are not those of {}",
                                                counted(LogProblem::unreadable).count, summary_.lines,
                                                describe(entry_of(options_.kind).looks_like))),
                  "see 'Logs of other tools' in the README for how to record one");
    summary_.stacks = stacks_.size();
    summary_.threads = threads_.size();
    summary_.mispaired = counted(LogProblem::mispaired).count;
    summary_.unreadable = counted(LogProblem::unreadable).count;
    summary_.unpaired = counted(LogProblem::unpaired).count;
    summary_.other_processes = counted(LogProblem::other_process).count;
    add_problem_note(LogProblem::mispaired,
                     "results that no such call returns were left out: they are other calls'");
    add_problem_note(LogProblem::unpaired,
                     "calls of which only the start or the end is in the log were left out");
    add_problem_note(LogProblem::other_process, "calls of other processes were left out");
    add_problem_note(LogProblem::no_arguments,
                     "calls have no arguments in the log: what they unmapped, and how long "
                     "their mappings are, is not known");
    add_problem_note(LogProblem::mixed_lines, "times output of two processors was mixed, and left out");
    add_problem_note(LogProblem::unreadable, "lines of the log were not understood");
    if (summary_.lost != 0) keep(writer_->lost({summary_.lost, "as the tool that wrote the log says"}));
    for (const std::string& text : notes_) keep(writer_->note(text));
    TraceEnd end;
    end.reason = "imported";
    end.end_ns = last_ns_;
    end.hits = summary_.events + summary_.mispaired;
    end.events = summary_.events;
    end.failed_calls = summary_.failed_calls;
    end.lost = summary_.lost;
    end.mispaired = summary_.mispaired;
    end.threads = summary_.threads;
    keep(writer_->end(end));
    if (output_) return tl::make_unexpected(*output_);
    return summary_;
  }

  const ImportOptions& options_;
  ImportSummary summary_;
  std::optional<pid_t> chosen_;
  std::optional<TraceWriter> writer_;
  std::optional<Error> output_;
  std::unordered_map<std::string, std::uint32_t> stacks_;
  std::unordered_set<pid_t> threads_;
  std::array<Counted, 6> problems_;  ///< by LogProblem
  std::vector<std::string> notes_;
  std::uint64_t last_ns_ = 0;
};

}  // namespace

Result<LogKind> log_kind(std::string_view name) {
  std::string known;
  for (const KindName& each : kinds) {
    if (each.name == name) return each.kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", each.name);
  }
  return fail(ErrorCode::usage, fmt::format("--from is '{}', and must be one of {}", name, known));
}

std::string_view name_of(LogKind kind) {
  return entry_of(kind).name;
}

std::unique_ptr<LogParser> make_log_parser(LogKind kind, LogSink& sink) {
  switch (kind) {
    case LogKind::gdb_log: return make_gdb_log_parser(sink);
    case LogKind::bpftrace: return make_bpftrace_parser(sink);
    case LogKind::perf_script: return make_perf_script_parser(sink);
    case LogKind::strace: return make_strace_parser(sink);
  }
  return nullptr;
}

Result<ImportSummary> import_log(const std::string& path, const ImportOptions& options) {
  if (std::error_code unknown; std::filesystem::equivalent(path, options.output, unknown))
    return fail(ErrorCode::output_unwritable, fmt::format("{} is the log that is read", options.output),
                "give the trace another name with -o");
  auto source = LineSource::open(path);
  if (!source) return tl::make_unexpected(source.error());
  return Importer(options).run(std::move(*source), path);
}

}  // namespace whomap
