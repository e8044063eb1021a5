// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "core/base/files.h"
#include "core/trace/input_kind.h"
#include "core/trace/reader.h"
#include "core/trace/writer.h"

namespace whomap {
namespace {

class TraceFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "whomap-trace-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/a.trace";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static TraceHeader header() {
    TraceHeader made;
    made.target = {1234, 5678, "/opt/app \xff", "app"};
    made.engine = "gdb";
    made.tool_version = "0.1.0";
    made.start_ns = 77;
    return made;
  }

  /// One record of every type.
  std::string whole_trace() {
    auto writer = TraceWriter::create(path_, true, header());
    EXPECT_TRUE(writer.has_value());
    Stack stack;
    stack.id = 3;
    stack.frames.push_back(
        {"/lib/libc.so.6", "ab12", 0x10, "mmap", std::nullopt, std::nullopt, false, false, false});
    stack.frames.push_back(
        {"/opt/app", "", 0x20, std::nullopt, std::nullopt, std::nullopt, false, true, true});
    stack.truncated = "copy ended";
    EXPECT_TRUE(writer->stack(stack));
    Snapshot snapshot = snapshot_from_text("1000-3000 rw-p 00000000 00:00 0 [heap]\nRss: 8 kB\n");
    snapshot.time_ns = 80;
    EXPECT_TRUE(writer->snapshot(snapshot));
    TraceEvent event;
    event.call = {90, 91, 1234, 9, {0, 4096, 3, 0x22, ~std::uint64_t{0}, 0}, 0x7f0000000000, 2};
    event.stack = 3;
    EXPECT_TRUE(writer->event(event));
    EXPECT_TRUE(writer->lost({4, "ring full"}));
    EXPECT_TRUE(writer->note("a note"));
    stack.frames[1].function = "main";
    stack.frames[1].file = "main.c";
    stack.frames[1].line = 42;
    stack.frames[1].inlined = true;
    EXPECT_TRUE(writer->symbols(stack));
    TraceEnd end;
    end.reason = "time";
    end.end_ns = 100;
    end.hits = 5;
    end.threads = 2;
    end.stopped_ms = 1.5;
    EXPECT_TRUE(writer->end(end));
    return *read_file(path_);
  }

  struct Seen {
    std::vector<Stack> stacks;
    std::vector<TraceEvent> events;
    std::vector<Snapshot> snapshots;
    std::vector<LostRecord> lost;
    std::vector<std::string> notes, lines;
    std::vector<TraceEnd> ends;
    std::vector<nlohmann::ordered_json> unknown;
    TraceHeader header;
  };
  static TraceVisitor visitor(Seen& seen) {
    TraceVisitor made;
    made.header = [&](const TraceHeader& header) { seen.header = header; };
    made.stack = [&](Stack stack) { seen.stacks.push_back(std::move(stack)); };
    made.event = [&](const TraceEvent& event) { seen.events.push_back(event); };
    made.snapshot = [&](Snapshot snapshot) { seen.snapshots.push_back(std::move(snapshot)); };
    made.lost = [&](const LostRecord& lost) { seen.lost.push_back(lost); };
    made.note = [&](const std::string& note) { seen.notes.push_back(note); };
    made.end = [&](const TraceEnd& end) { seen.ends.push_back(end); };
    made.unknown = [&](const nlohmann::ordered_json& record) { seen.unknown.push_back(record); };
    made.line = [&](std::string_view line) { seen.lines.emplace_back(line); };
    return made;
  }

  std::string folder_, path_;
};

TEST_F(TraceFile, EveryRecordComesBack) {
  whole_trace();
  Seen seen;
  const auto summary = read_trace(path_, visitor(seen));
  ASSERT_TRUE(summary.has_value()) << to_line(summary.error());
  EXPECT_FALSE(summary->cut);
  EXPECT_EQ(summary->records, 7U);
  EXPECT_EQ(summary->damaged_lines, 0U);
  EXPECT_EQ(seen.header.target.pid, 1234);
  EXPECT_EQ(seen.header.target.start_time, 5678U);
  EXPECT_EQ(seen.header.target.exe, "/opt/app \\xff");
  EXPECT_EQ(seen.header.engine, "gdb");
  EXPECT_EQ(seen.header.start_ns, 77U);
  ASSERT_EQ(seen.stacks.size(), 2U);
  EXPECT_EQ(seen.stacks[0].id, 3U);
  EXPECT_EQ(seen.stacks[0].truncated, "copy ended");
  ASSERT_EQ(seen.stacks[1].frames.size(), 2U);
  EXPECT_EQ(seen.stacks[0].frames[0], seen.stacks[1].frames[0]);
  EXPECT_EQ(seen.stacks[1].id, 3U);
  EXPECT_EQ(seen.stacks[1].frames[1].function, "main");
  EXPECT_EQ(seen.stacks[1].frames[1].line, 42U);
  EXPECT_TRUE(seen.stacks[1].frames[1].inlined && seen.stacks[1].frames[1].guessed &&
              seen.stacks[1].frames[1].exact);
  ASSERT_EQ(seen.events.size(), 1U);
  EXPECT_EQ(seen.events[0].call.result, 0x7f0000000000U);
  ASSERT_EQ(seen.snapshots.size(), 1U);
  EXPECT_EQ(seen.snapshots[0].regions[0].rss, 8192U);
  ASSERT_EQ(seen.lost.size(), 1U);
  EXPECT_EQ(seen.lost[0].count, 4U);
  EXPECT_EQ(seen.notes, std::vector<std::string>{"a note"});
  ASSERT_EQ(seen.ends.size(), 1U);
  EXPECT_EQ(seen.ends[0].stopped_ms, 1.5);
  EXPECT_EQ(seen.ends[0].longest_stop_ms, std::nullopt);
}

TEST_F(TraceFile, CutAnywhereItIsReadToItsLastWholeLine) {
  const std::string text = whole_trace();
  const std::size_t header_end = text.find('\n') + 1;
  std::uint64_t most = 0;
  for (std::size_t length = header_end; length < text.size(); ++length) {
    Seen seen;
    const auto summary = read_trace_text(text.substr(0, length), "cut", visitor(seen));
    ASSERT_TRUE(summary.has_value());
    EXPECT_EQ(summary->damaged_lines, 0U);
    // A last record that lacks nothing but its newline is whole.
    EXPECT_EQ(summary->cut, length + 1 < text.size());
    EXPECT_GE(summary->records, most);
    most = summary->records;
  }
  EXPECT_EQ(most, 7U);
}

TEST_F(TraceFile, ACutHeaderIsDamage) {
  const std::string text = whole_trace();
  const auto summary = read_trace_text(text.substr(0, text.find('\n') / 2), "cut", {});
  ASSERT_FALSE(summary.has_value());
  EXPECT_EQ(summary.error().code, ErrorCode::input_damaged);
}

TEST_F(TraceFile, DamagedLinesAreCountedAndLocated) {
  std::string text = whole_trace();
  const std::size_t second = text.find('\n') + 1;
  text.insert(second,
              "rubbish\n{\"type\":7}\n{\"type\":\"event\"}\n[]\n{\"a\":1}\n\n{\"type\":\"stack\",\"id\":-1,"
              "\"frames\":[]}\n");
  Seen seen;
  const auto summary = read_trace_text(text, "damaged", visitor(seen));
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->damaged_lines, 6U);
  EXPECT_EQ(summary->damaged_line_numbers, (std::vector<std::uint64_t>{2, 3, 4, 5, 6, 8}));
  EXPECT_EQ(summary->records, 7U);
  EXPECT_FALSE(summary->cut);
}

TEST_F(TraceFile, UnknownTypesAndFieldsSurviveACopy) {
  std::string text = whole_trace();
  const std::size_t second = text.find('\n') + 1;
  text.insert(second, "{\"type\":\"weather\",\"sky\":{\"colour\":\"blue\"}}\n");
  const std::size_t event = text.find("\"enter_ns\"");
  text.insert(event, "\"mood\":\"good\",");
  Seen seen;
  const auto summary = read_trace_text(text, "unknown", visitor(seen));
  ASSERT_TRUE(summary.has_value());
  ASSERT_EQ(seen.unknown.size(), 1U);
  EXPECT_EQ(seen.unknown[0]["sky"]["colour"], "blue");
  EXPECT_EQ(seen.events.size(), 1U);
  std::string copy;
  for (const std::string& line : seen.lines) copy += line + "\n";
  EXPECT_EQ(copy, text);
}

TEST_F(TraceFile, ANewerVersionIsRefused) {
  std::string text = whole_trace();
  text.replace(text.find("\"version\":1"), 11, "\"version\":2");
  const auto summary = read_trace_text(text, "new.trace", {});
  ASSERT_FALSE(summary.has_value());
  EXPECT_EQ(summary.error().code, ErrorCode::input_kind);
  EXPECT_NE(summary.error().happened.find("version 2"), std::string::npos);
}

TEST_F(TraceFile, FilesOfOtherKindsAreNamed) {
  const std::vector<std::pair<std::string, InputKind>> files{
      {"", InputKind::empty},
      {"\x1f\x8b\x08\x00", InputKind::gzip},
      {std::string("\x7f"
                   "ELF\x02\x01\x01\0",
                   8),
       InputKind::elf},
      {"PERFILE2xxxx", InputKind::perf_data},
      {std::string("a\0b", 3), InputKind::binary},
      {"{\"format\":\"whomap-plan\",\"version\":1}", InputKind::whomap_plan},
      {"{\n  \"format\": \"whomap-report\",\n", InputKind::whomap_report},
      {"{\"format\":\"whomap-watch\"}\n", InputKind::whomap_watch},
      {"{\"a\":1}\n", InputKind::json},
      {"5581-5582 r--p 00000000 08:01 12 /bin/x\n5583-5584 rw-p 00000000 00:00 0 \n", InputKind::maps},
      {"5581-5582 r--p 00000000 08:01 12 /bin/x\nSize:      4 kB\n", InputKind::smaps},
      {"#0  0x00007f in syscall () from /lib/libc.so.6\nSyscall returned: rax = 0x7f00\n",
       InputKind::gdb_log},
      {"app 12 [000] 1.0: syscalls:sys_exit_mmap: 0x7f\n\t7f syscall\n", InputKind::perf_script},
      {"[pid 12] mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f00\n", InputKind::strace},
      {"Attaching 2 probes...\n@[...]: 1\n", InputKind::bpftrace},
      {"hello\n", InputKind::text},
      {"   \n", InputKind::text},
  };
  for (const auto& [text, kind] : files) {
    EXPECT_EQ(input_kind(text), kind) << describe(input_kind(text)) << " <- " << text;
    const auto summary = read_trace_text(text, "some.file", {});
    ASSERT_FALSE(summary.has_value());
    EXPECT_EQ(summary.error().code, ErrorCode::input_kind);
    if (kind == InputKind::json) continue;
    EXPECT_NE(summary.error().happened.find(describe(kind)), std::string::npos) << summary.error().happened;
  }
  const auto missing = read_trace(folder_ + "/none", {});
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::input_unreadable);
  const auto folder = read_trace(folder_, {});
  ASSERT_FALSE(folder.has_value());
  EXPECT_EQ(folder.error().code, ErrorCode::input_unreadable);
}

TEST_F(TraceFile, HostileLinesAreDamageAndNothingWorse) {
  const std::string text = whole_trace();
  const std::string head = text.substr(0, text.find('\n') + 1);
  const std::vector<std::string> lines{
      std::string(1'000'000, '['),
      "{\"type\":\"new\",\"x\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
      "{\"type\":\"lost\",\"count\":1e999}",
      "{\"type\":\"lost\",\"count\":-5}",
      "{\"type\":\"lost\",\"count\":99999999999999999999999}",
      "{\"type\":\"end\",\"reason\":\"x\",\"end_ns\":null}",
      "{\"type\":\"snapshot\",\"time_ns\":1,\"regions\":{\"start\":1}}",
      "{\"type\":\"stack\",\"id\":4294967296,\"frames\":[]}",
      "{\"type\":\"stack\",\"id\":1,\"frames\":[null]}",
      "{\"type\":\"note\",\"text\":{}}",
      "{\"type\":\"note\",\"text\":\"\xff\xfe\"}",
      std::string("{\"type\":\"note\",\"text\":\"\0\"}", 26),
  };
  for (const std::string& line : lines) {
    Seen seen;
    const auto summary = read_trace_text(head + line + "\n", "hostile", visitor(seen));
    ASSERT_TRUE(summary.has_value());
    EXPECT_EQ(summary->damaged_lines, 1U) << line.substr(0, 80);
    EXPECT_TRUE(summary->cut);
  }
}

TEST_F(TraceFile, RandomDamageNeverCrashes) {
  const std::string text = whole_trace();
  std::mt19937 random(11);
  for (int round = 0; round < 3'000; ++round) {
    std::string damaged = text;
    for (auto changes = 1 + random() % 6; changes != 0; --changes) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0: damaged[at] = static_cast<char>(random()); break;
        case 1: damaged.erase(at, 1 + random() % 40); break;
        case 2: damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 40)); break;
        default: damaged[at] = "{}[]\",:0-"[random() % 9];
      }
      if (damaged.empty()) break;
    }
    Seen seen;
    const auto summary = read_trace_text(damaged, "damaged", visitor(seen));
    if (summary.has_value()) continue;
    EXPECT_EQ(exit_status(summary.error().code), ExitStatus::bad_input);
  }
}

TEST_F(TraceFile, LinesLongerThanTheReadBuffer) {
  auto writer = TraceWriter::create(path_, true, header());
  ASSERT_TRUE(writer.has_value());
  const std::string long_note(3'000'000, 'n');
  ASSERT_TRUE(writer->note(long_note));
  for (int i = 0; i < 30'000; ++i) ASSERT_TRUE(writer->event({}));
  ASSERT_TRUE(writer->note(long_note));
  ASSERT_TRUE(writer->end({}));
  Seen seen;
  const auto summary = read_trace(path_, visitor(seen));
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->records, 30'003U);
  EXPECT_EQ(seen.events.size(), 30'000U);
  ASSERT_EQ(seen.notes.size(), 2U);
  EXPECT_EQ(seen.notes[1], long_note);
}

}  // namespace
}  // namespace whomap
