// SPDX-License-Identifier: Apache-2.0
#include "core/trace/writer.h"

#include "core/base/json_fields.h"
#include "core/trace/event_line.h"
#include "core/trace/record_in_pieces.h"
#include "core/trace/record_json.h"

namespace whomap {

Result<TraceWriter> TraceWriter::create(const std::string& path, bool overwrite, const TraceHeader& header) {
  auto file = OutputFile::create(path, overwrite);
  if (!file) return tl::make_unexpected(file.error());
  TraceWriter writer(std::move(*file));
  if (auto wrote = writer.line(header_to_json(header)); !wrote) return tl::make_unexpected(wrote.error());
  // From here on even a killed writer leaves a file that says what it is.
  if (auto wrote = writer.flush(); !wrote) return tl::make_unexpected(wrote.error());
  return writer;
}

Result<void> TraceWriter::line(const nlohmann::ordered_json& record) {
  std::string text = dump_line(record);
  text += '\n';
  return file_.write(text);
}

Result<void> TraceWriter::stack(const Stack& stack) {
  return line(stack_to_json(stack, false));
}
Result<void> TraceWriter::symbols(const Stack& stack) {
  return line(stack_to_json(stack, true));
}

Result<void> TraceWriter::event(const TraceEvent& event) {
  event_line_.clear();
  append_event_line(event_line_, event);
  return file_.write(event_line_);
}

Result<void> TraceWriter::snapshot(const Snapshot& snapshot) {
  nlohmann::ordered_json head{{"type", "snapshot"}};
  head.update(to_json_without_regions(snapshot));
  RecordInPieces record(file_, head);
  record.array("regions");
  for (const Region& region : snapshot.regions) record.item(to_json(region));
  return record.finish();
}

Result<void> TraceWriter::lost(const LostRecord& lost) {
  return line(lost_to_json(lost));
}

Result<void> TraceWriter::note(const std::string& text) {
  return line({{"type", "note"}, {"text", json_text(text)}});
}

Result<void> TraceWriter::copy_line(std::string_view text) {
  if (auto wrote = file_.write(text); !wrote) return wrote;
  return file_.write("\n");
}

Result<void> TraceWriter::end(const TraceEnd& end) {
  if (auto wrote = line(end_to_json(end)); !wrote) return wrote;
  return file_.finish();
}

Result<void> TraceWriter::flush() {
  return file_.flush();
}

}  // namespace whomap
