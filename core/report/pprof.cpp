// SPDX-License-Identifier: Apache-2.0
// The format of pprof: gzip of the message perftools.profiles.Profile
// (https://github.com/google/pprof/blob/main/proto/profile.proto, from which the field numbers are).
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <zlib.h>

#include "core/base/version.h"
#include "core/report/protobuf.h"
#include "core/report/report.h"

namespace whomap {
namespace {

class Pprof {
 public:
  explicit Pprof(const Answer& answer) : answer_(answer) { string(""); }

  std::string run(Weight weight) {
    value_type(1, "growth", "bytes");
    value_type(1, "live", "bytes");
    value_type(1, "calls", "count");
    program_first();
    for (const StackAnswer& row : answer_.stacks) sample(row);
    profile_.number(10, static_cast<std::uint64_t>(answer_.seconds * 1e9));
    profile_.number(13,
                    string(fmt::format("whomap {}: {}", WHOMAP_VERSION, printable(answer_.verdict_text))));
    profile_.number(14, string(weight == Weight::growth ? "growth" : "live"));
    for (const std::string& text : strings_in_order_) profile_.bytes(6, text);
    return profile_.text();
  }

 private:
  using Location = std::vector<const Frame*>;  ///< functions inlined into one another, innermost first

  std::uint64_t string(const std::string& text) {
    const auto [at, fresh] = strings_.try_emplace(text, strings_.size());
    if (fresh) strings_in_order_.push_back(text);
    return at->second;
  }

  void value_type(std::uint32_t field, const std::string& type, const std::string& unit) {
    ProtobufWriter message;
    message.number(1, string(type));
    message.number(2, string(unit));
    profile_.bytes(field, message.text());
  }

  void sample(const StackAnswer& row) {
    if (row.growth_bytes == 0 && row.live_bytes == 0) return;
    std::vector<std::uint64_t> locations;
    Location together;
    for (const Frame& frame : row.stack.frames) {
      together.push_back(&frame);
      if (frame.inlined) continue;
      locations.push_back(location(together));
      together.clear();
    }
    if (!together.empty()) locations.push_back(location(together));
    Frame cut;
    cut.function = truncated_name;
    if (row.stack.truncated || locations.empty()) locations.push_back(location({&cut}));
    ProtobufWriter message;
    message.numbers(1, locations);
    message.numbers(2, {row.growth_bytes, row.live_bytes, row.count});
    profile_.bytes(2, message.text());
  }

  /// The first mapping is the main program's (profile.proto); viewers title the profile with it.
  void program_first() {
    Frame program;
    program.module = answer_.header.target.exe;
    for (const StackAnswer& row : answer_.stacks)
      for (const Frame& frame : row.stack.frames)
        if (frame.module == program.module && !frame.build_id.empty()) program.build_id = frame.build_id;
    mapping(program);
  }

  std::uint64_t location(const Location& frames) {
    ProtobufWriter lines;
    for (const Frame* frame : frames) {
      ProtobufWriter line;
      line.number(1, function(*frame));
      line.number(2, frame->line.value_or(0));
      lines.bytes(4, line.text());
    }
    const Frame& outermost = *frames.back();
    const auto [at, fresh] =
        locations_.try_emplace({outermost.module, outermost.offset, lines.text()}, locations_.size() + 1);
    if (!fresh) return at->second;
    ProtobufWriter message;
    message.number(1, at->second);
    message.number(2, mapping(outermost));
    message.number(3, outermost.offset);
    profile_.bytes(4, message.text() + lines.text());
    return at->second;
  }

  std::uint64_t function(const Frame& frame) {
    const std::string name = viewer_name(frame);
    const std::string file = printable(frame.file.value_or(""));
    const auto [at, fresh] = functions_.try_emplace({name, file}, functions_.size() + 1);
    if (!fresh) return at->second;
    ProtobufWriter message;
    message.number(1, at->second);
    message.number(2, string(name));
    message.number(3, string(name));
    message.number(4, string(file));
    profile_.bytes(5, message.text());
    return at->second;
  }

  /// 0: none.
  std::uint64_t mapping(const Frame& frame) {
    if (frame.module.empty()) return 0;
    const auto [at, fresh] = mappings_.try_emplace(frame.module, mappings_.size() + 1);
    if (!fresh) return at->second;
    ProtobufWriter message;
    message.number(1, at->second);
    message.number(5, string(printable(frame.module)));
    message.number(6, string(frame.build_id));
    // All names that can be had are here already: pprof need not look for the file.
    for (const std::uint32_t has : {7U, 8U, 9U, 10U}) message.number(has, 1);
    profile_.bytes(3, message.text());
    return at->second;
  }

  const Answer& answer_;
  ProtobufWriter profile_;
  std::map<std::string, std::uint64_t> strings_;
  std::vector<std::string> strings_in_order_;
  std::map<std::tuple<std::string, std::uint64_t, std::string>, std::uint64_t> locations_;
  std::map<std::pair<std::string, std::string>, std::uint64_t> functions_;
  std::map<std::string, std::uint64_t> mappings_;
};

Result<std::string> gzip(const std::string& text) {
  z_stream stream{};
  constexpr int gzip_header = 16;  // added to the window bits: zlib.h, deflateInit2
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + gzip_header, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    return fail(ErrorCode::output_unwritable, "zlib could not be started");
  std::string out(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int done = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (done != Z_STREAM_END) return fail(ErrorCode::output_unwritable, "zlib could not compress the profile");
  return out;
}

}  // namespace

Result<std::string> to_pprof(const Answer& answer, Weight weight) {
  return gzip(Pprof(answer).run(weight));
}

}  // namespace whomap
