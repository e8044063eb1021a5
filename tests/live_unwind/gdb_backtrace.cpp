// SPDX-License-Identifier: Apache-2.0
#include "gdb_backtrace.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <unistd.h>

#include "core/symbols/symboliser.h"

namespace whomap::test {
namespace {

constexpr const char* frames_script = R"(
import gdb
gdb.execute("set backtrace past-main on")
for thread in gdb.selected_inferior().threads():
    if thread.ptid[1] == TID:
        thread.switch()
kinds = {gdb.NORMAL_FRAME: "normal", gdb.INLINE_FRAME: "inline", gdb.SIGTRAMP_FRAME: "signal", gdb.TAILCALL_FRAME: "normal"}
frame = gdb.newest_frame()
count = 0
with open("OUTPUT", "w") as output:
    while frame is not None and count < LIMIT:
        sal = frame.find_sal()
        file = sal.symtab.filename.split("/")[-1] if sal.symtab else ""
        output.write("%x\t%s\t%s\t%d\t%s\n" % (frame.pc(), frame.name() or "", file, sal.line if file else 0, kinds.get(frame.type(), "other")))
        count += 1
        try:
            frame = frame.older()
        except gdb.error:
            break
)";

std::string with(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// The position of the bracket that the one at `end` closes, npos when there is none.
std::size_t opening(const std::string& text, std::size_t end) {
  int depth = 0;
  for (std::size_t i = end + 1; i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) return i;
  }
  return std::string::npos;
}

}  // namespace

std::string without_parameters(const std::string& name) {
  const std::size_t end = name.rfind(')');
  if (end == std::string::npos || name.compare(end, 3, ")::") == 0) return name;
  const std::size_t start = opening(name, end);
  if (start == std::string::npos || start == 0) return name;
  std::string rest = name.substr(0, start);
  if (rest.size() >= 8 && rest.compare(rest.size() - 8, 8, "operator") == 0) rest += "()";
  // A return type (of templates only) ends at the last space outside brackets.
  int depth = 0;
  for (std::size_t i = rest.size(); i-- > 0;) {
    const char c = rest[i];
    if (c == '>' || c == ')' || c == '}') ++depth;
    if (c == '<' || c == '(' || c == '{') --depth;
    if (c == ' ' && depth == 0 && rest.compare(0, i, "operator") != 0 &&
        rest.find("operator ") == std::string::npos)
      return rest.substr(i + 1);
  }
  return rest;
}

std::vector<GdbFrame> gdb_backtrace(pid_t pid, pid_t tid, int limit) {
  char folder[] = "/tmp/whomap_gdb_XXXXXX";
  if (::mkdtemp(folder) == nullptr) throw std::runtime_error("mkdtemp");
  const std::string script = std::string(folder) + "/frames.py", output = std::string(folder) + "/frames";
  std::ofstream(script) << with(with(with(frames_script, "TID", std::to_string(tid)), "OUTPUT", output),
                                "LIMIT", std::to_string(limit));
  const std::string command = fmt::format(
      "gdb -nx -batch -iex 'set auto-load off' -iex 'set debuginfod enabled off' -iex 'set "
      "libthread-db-search-path /nonexistent' -p {} -x {} >{}/log 2>&1 </dev/null",
      pid, script, folder);
  [[maybe_unused]] const int status = std::system(command.c_str());

  std::vector<GdbFrame> frames;
  std::ifstream file(output);
  for (std::string text; std::getline(file, text);) {
    std::istringstream columns(text);
    GdbFrame frame;
    std::string pc, line;
    std::getline(columns, pc, '\t');
    std::getline(columns, frame.name, '\t');
    std::getline(columns, frame.file, '\t');
    std::getline(columns, line, '\t');
    std::getline(columns, frame.type, '\t');
    // GDB leaves parameters where it cannot parse the name (lambdas); both sides are cut alike.
    frame.name = without_parameters(frame.name);
    frame.pc = std::stoull(pc, nullptr, 16);
    frame.line = static_cast<std::uint32_t>(std::stoul(line));
    frames.push_back(frame);
  }
  if (frames.empty()) {
    std::ifstream log(std::string(folder) + "/log");
    std::fprintf(stderr, "%s\n", std::string(std::istreambuf_iterator<char>(log), {}).c_str());
  }
  for (const char* const name : {"/frames.py", "/frames", "/log"})
    ::unlink((folder + std::string(name)).c_str());
  ::rmdir(folder);
  return frames;
}

Comparison compare_with_gdb(pid_t pid, pid_t tid, const StoppedThread& thread) {
  const Code code = code_of(pid);
  Unwinder unwinder(code.modules);
  unwinder.set_other_code(code.other);
  const UnwoundStack stack = unwinder.unwind(thread.registers, thread.stack);

  Comparison result;
  result.truncated = stack.truncated;
  Symboliser symboliser;
  UnwoundStack as_gdb_sees_it = stack;
  if (!as_gdb_sees_it.frames.empty()) as_gdb_sees_it.frames.front().exact = true;
  for (const UnwoundFrame& frame : stack.frames) result.guessed |= frame.guessed;
  std::uint64_t inferred = 0;
  for (const Frame& frame : symboliser.frames(as_gdb_sees_it, code.modules)) {
    // Of a function that left by a tail call in inlined code GDB shows the inlined one alone; whomap both.
    const bool tail_call = frame.guessed && !result.guessed;
    if (tail_call && frame.offset == inferred) continue;
    inferred = tail_call ? frame.offset : 0;
    const bool signal = frame.exact && !result.ours.empty() && frame.function == "__restore_rt";
    result.ours.push_back({frame.offset, without_parameters(frame.function.value_or("")),
                           base_name(frame.file.value_or("")), frame.line.value_or(0),
                           frame.inlined && !tail_call ? "inline"
                           : signal                    ? "signal"
                                                       : "normal"});
  }
  result.theirs = gdb_backtrace(pid, tid);
  if (result.ours.size() != result.theirs.size())
    result.differences.push_back(
        fmt::format("{} frames, GDB has {}", result.ours.size(), result.theirs.size()));
  for (std::size_t i = 0; i < std::min(result.ours.size(), result.theirs.size()); ++i) {
    const GdbFrame& ours = result.ours[i];
    const GdbFrame& theirs = result.theirs[i];
    if (ours.name != theirs.name || ours.file != theirs.file || ours.line != theirs.line ||
        ours.type != theirs.type)
      result.differences.push_back(fmt::format("#{}: {}, GDB has {}", i, to_text({ours}), to_text({theirs})));
  }
  return result;
}

std::string to_text(const std::vector<GdbFrame>& frames) {
  std::string text;
  for (const GdbFrame& frame : frames) {
    if (!text.empty()) text += '\n';
    text += fmt::format("{:#x} {} {}:{} {}", frame.pc, frame.name, frame.file, frame.line, frame.type);
  }
  return text;
}

}  // namespace whomap::test
