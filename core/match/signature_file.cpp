// SPDX-License-Identifier: Apache-2.0
#include "core/match/signature_file.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <re2/re2.h>

#include "core/base/files.h"
#include "core/base/json_fields.h"

namespace whomap {
namespace {

using nlohmann::json;
using Regex = std::shared_ptr<const re2::RE2>;

/// Reads one signature; the first problem is kept.
class SignatureReader {
 public:
  SignatureReader(const json& object, const std::string& where) : fields_(object, where), object_(object) {}

  void read(Signature& signature) {
    known_cause(signature);
    if (json_member(object_, "region_kinds") != nullptr)
      signature.region_kinds = fields_.texts("region_kinds");
    signature.frames = patterns("frames", signature.region_kinds.empty());
    signature.without = patterns("without", false);
    if (json_member(object_, "classes") != nullptr) signature.classes = fields_.texts("classes");
    signature.nameless_possible = json_bool(object_, "nameless_possible").value_or(false);
    if (const json* const version = json_member(object_, "version"))
      signature.version = VersionCondition{regex(*version, "of"), json_string(*version, "from").value_or(""),
                                           json_string(*version, "to").value_or("")};
    if (signature.version && signature.version->of && signature.version->of->NumberOfCapturingGroups() != 1)
      fields_.wrong("version.of", "an expression with one group");
  }

  void read(RegionSignature& signature) {
    known_cause(signature);
    signature.name = regex(object_, "name");
    if (json_member(object_, "kinds") != nullptr) signature.kinds = fields_.texts("kinds");
    signature.flag = json_string(object_, "flag").value_or("");
    signature.file_pages = json_bool(object_, "file_pages").value_or(false);
    signature.huge_pages = json_number(object_, "huge_pages");
    signature.lazy_free = json_number(object_, "lazy_free");
    if (!signature.name && signature.kinds.empty() && signature.flag.empty() && !signature.file_pages &&
        !signature.huge_pages && !signature.lazy_free)
      fields_.wrong("name", "there, or another condition");
  }

  void read(ProcessSignature& signature) {
    known_cause(signature);
    signature.mapped = regex(object_, "mapped");
    if (!signature.mapped) fields_.wrong("mapped", "an expression");
    signature.verdicts = fields_.texts("verdicts");
  }

  [[nodiscard]] const std::string& problem() const { return fields_.problem(); }

 private:
  void known_cause(KnownCause& known) {
    known.id = fields_.text("id");
    known.cause = fields_.text("cause");
    known.remedy = json_string(object_, "remedy").value_or("");
    known.hazard = json_string(object_, "hazard").value_or("");
    known.source = fields_.text("source");
    known.certainty = fields_.text("certainty");
    if (known.remedy.empty() != known.hazard.empty())
      fields_.wrong(known.remedy.empty() ? "remedy" : "hazard",
                    "there, and a remedy needs its hazard (\"none known\" is one)");
    if (known.certainty != "A" && known.certainty != "B" && known.certainty != "C")
      fields_.wrong("certainty", "A, B or C");
  }

  Regex regex(const json& object, const char* name) {
    const auto text = json_string(object, name);
    if (!text) return nullptr;
    re2::RE2::Options options;
    options.set_log_errors(false);
    auto expression = std::make_shared<re2::RE2>(*text, options);
    if (!expression->ok()) {
      fields_.wrong(name, fmt::format("an expression: {}", expression->error()));
      return nullptr;
    }
    return expression;
  }

  std::vector<FramePattern> patterns(const char* name, bool needed) {
    std::vector<FramePattern> result;
    if (!needed && json_member(object_, name) == nullptr) return result;
    const json* const list = fields_.array(name);
    if (list == nullptr) return result;
    for (const json& each : *list) {
      FramePattern pattern{regex(each, "module"), regex(each, "function")};
      if (!pattern.module && !pattern.function) fields_.wrong(name, "a list of {module, function}");
      result.push_back(std::move(pattern));
    }
    if (result.empty()) fields_.wrong(name, "a list with a frame in it");
    return result;
  }

  JsonFields fields_;
  const json& object_;
};

/// The member `list` of `file`, which may be left out.
template <class Kind>
Result<std::vector<Kind>> read_list(const json& file, const char* list, const std::string& name) {
  std::vector<Kind> signatures;
  const json* const array = json_member(file, list);
  if (array == nullptr) return signatures;
  if (!array->is_array())
    return fail(ErrorCode::input_damaged, fmt::format("{}: {} is not a list", name, list));
  for (const json& each : *array) {
    SignatureReader reader(each,
                           json_string(each, "id").value_or(fmt::format("{}[{}]", list, signatures.size())));
    Kind signature;
    reader.read(signature);
    if (!reader.problem().empty())
      return fail(ErrorCode::input_damaged, fmt::format("{}: {}", name, reader.problem()),
                  "core/README.md describes the format");
    signatures.push_back(std::move(signature));
  }
  return signatures;
}

template <class Kind>
void add(std::vector<Kind>& signatures, std::vector<Kind> more) {
  for (Kind& each : more) {
    const auto same = std::find_if(signatures.begin(), signatures.end(),
                                   [&](const Kind& known) { return known.id == each.id; });
    if (same != signatures.end())
      *same = std::move(each);
    else
      signatures.push_back(std::move(each));
  }
}

}  // namespace

Result<SignatureFile> signatures_from_text(std::string_view text, const std::string& name) {
  const json file = parse_json(text);
  if (json_string(file, "format") != "whomap-signatures")
    return fail(ErrorCode::input_kind, fmt::format("{} is not a file of signatures", name),
                "core/README.md describes the format");
  if (json_unsigned(file, "version") != 1)
    return fail(ErrorCode::input_kind, fmt::format("{}: this whomap reads version 1", name));
  auto stacks = read_list<Signature>(file, "signatures", name);
  if (!stacks) return tl::make_unexpected(stacks.error());
  auto regions = read_list<RegionSignature>(file, "regions", name);
  if (!regions) return tl::make_unexpected(regions.error());
  auto processes = read_list<ProcessSignature>(file, "processes", name);
  if (!processes) return tl::make_unexpected(processes.error());
  auto frames = frame_rules_from_text(text, name);
  if (!frames) return tl::make_unexpected(frames.error());
  const bool any = !stacks->empty() || !regions->empty() || !processes->empty() || !frames->empty();
  if (!any && json_member(file, "signatures") == nullptr)
    return fail(ErrorCode::input_damaged, fmt::format("{} has no list of signatures", name));
  return SignatureFile{std::move(*stacks), std::move(*regions), std::move(*processes), std::move(*frames)};
}

Result<SignatureFile> load_signatures(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return tl::make_unexpected(text.error());
  return signatures_from_text(*text, path);
}

void add_signatures(SignatureFile& signatures, SignatureFile more) {
  add(signatures.stacks, std::move(more.stacks));
  add(signatures.regions, std::move(more.regions));
  add(signatures.processes, std::move(more.processes));
  signatures.frames.insert(signatures.frames.begin(), more.frames.begin(), more.frames.end());
}

}  // namespace whomap
