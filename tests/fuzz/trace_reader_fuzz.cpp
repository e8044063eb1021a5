// SPDX-License-Identifier: Apache-2.0
// A trace file may hold anything: reading it must not crash, and every line is a record, damaged, or the cut
// end.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/trace/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The header decides whether anything else is read at all: half of the inputs get a good one.
  std::string text(reinterpret_cast<const char*>(data), size);
  if (size != 0 && data[0] % 2 == 0)
    text = R"({"format":"whomap-trace","version":1,"target":{"pid":1,"start_time":1},"plan":null})"
           "\n" +
           text.substr(1);
  std::uint64_t lines = 0;
  whomap::TraceVisitor visitor;
  visitor.header = [](const whomap::TraceHeader&) {};
  visitor.stack = [](const whomap::Stack&) {};
  visitor.event = [](const whomap::TraceEvent& event) {
    if (event.call.enter_ns > event.call.exit_ns) std::abort();
  };
  visitor.snapshot = [](const whomap::Snapshot& snapshot) {
    for (std::size_t i = 0; i < snapshot.regions.size(); ++i)
      if (snapshot.regions[i].vma.start >= snapshot.regions[i].vma.end) std::abort();
  };
  visitor.lost = [](const whomap::LostRecord&) {};
  visitor.note = [](const std::string&) {};
  visitor.end = [](const whomap::TraceEnd&) {};
  visitor.unknown = [](const nlohmann::ordered_json&) {};
  visitor.line = [&](std::string_view) { ++lines; };
  const auto summary = whomap::read_trace_text(text, "fuzz", visitor);
  if (summary && summary->records + summary->damaged_lines > lines + 1) std::abort();
  return 0;
}
