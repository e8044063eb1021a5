// SPDX-License-Identifier: Apache-2.0
#include "core/match/signatures.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <re2/re2.h>

#include "core/base/files.h"
#include "core/base/json_fields.h"
#include "core/match/culprit.h"

namespace whomap {
namespace {

using nlohmann::json;
using Regex = std::shared_ptr<const re2::RE2>;

/// Reads one signature; the first problem is kept.
class SignatureReader {
 public:
  SignatureReader(const json& object, std::string where)
      : fields_(object, where), object_(object), where_(where) {}

  Signature read() {
    Signature signature;
    signature.id = fields_.text("id");
    signature.frames = patterns("frames", true);
    signature.without = patterns("without", false);
    if (json_member(object_, "classes") != nullptr) signature.classes = fields_.texts("classes");
    signature.nameless_possible = json_bool(object_, "nameless_possible").value_or(false);
    signature.cause = fields_.text("cause");
    signature.remedy = json_string(object_, "remedy").value_or("");
    signature.hazard = json_string(object_, "hazard").value_or("");
    signature.source = fields_.text("source");
    signature.certainty = fields_.text("certainty");
    if (const json* const version = json_member(object_, "version"))
      signature.version = VersionCondition{regex(*version, "of"), json_string(*version, "from").value_or(""),
                                           json_string(*version, "to").value_or("")};
    if (signature.version && signature.version->of && signature.version->of->NumberOfCapturingGroups() != 1)
      fields_.wrong("version.of", "an expression with one group");
    if (signature.remedy.empty() != signature.hazard.empty())
      fields_.wrong(signature.remedy.empty() ? "remedy" : "hazard",
                    "there, and a remedy needs its hazard (\"none known\" is one)");
    if (signature.certainty != "A" && signature.certainty != "B" && signature.certainty != "C")
      fields_.wrong("certainty", "A, B or C");
    return signature;
  }
  [[nodiscard]] const std::string& problem() const { return fields_.problem(); }

 private:
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
  std::string where_;
};

enum class Fit { no, possible, yes };

Fit fits(const FramePattern& pattern, const Frame& frame, bool nameless_possible) {
  if (pattern.module && !re2::RE2::PartialMatch(module_name(frame), *pattern.module)) return Fit::no;
  if (!pattern.function) return Fit::yes;
  if (!frame.function) return nameless_possible && pattern.module ? Fit::possible : Fit::no;
  return re2::RE2::PartialMatch(*frame.function, *pattern.function) ? Fit::yes : Fit::no;
}

/// The patterns in order, each at the first frame that fits. With `possible`, frames without names may stand
/// in.
bool in_order(const Signature& signature, const Stack& stack, bool possible) {
  std::size_t next = 0;
  for (const Frame& frame : stack.frames) {
    if (next == signature.frames.size()) break;
    const Fit fit = fits(signature.frames[next], frame, signature.nameless_possible);
    if (fit == Fit::yes || (possible && fit == Fit::possible)) ++next;
  }
  return next == signature.frames.size();
}

/// yes: every frame is there by name. possible: some stand without names, or one without a name may be what
/// must not be there.
Fit fits(const Signature& signature, const Stack& stack) {
  bool sure = true;
  for (const Frame& frame : stack.frames)
    for (const FramePattern& pattern : signature.without)
      switch (fits(pattern, frame, signature.nameless_possible)) {
        case Fit::yes: return Fit::no;
        case Fit::possible: sure = false; break;
        case Fit::no: break;
      }
  if (in_order(signature, stack, false)) return sure ? Fit::yes : Fit::possible;
  return signature.nameless_possible && in_order(signature, stack, true) ? Fit::possible : Fit::no;
}

std::string_view nameless_module(const Signature& signature, const Stack& stack, std::string& holder) {
  for (const Frame& frame : stack.frames)
    for (const auto* list : {&signature.frames, &signature.without})
      for (const FramePattern& pattern : *list)
        if (fits(pattern, frame, true) == Fit::possible) {
          holder = module_name(frame);
          return holder;
        }
  return "the library";
}

std::string range_text(const VersionCondition& version) {
  if (version.from.empty()) return fmt::format("versions up to {}", version.to);
  if (version.to.empty()) return fmt::format("versions from {}", version.from);
  return version.from == version.to ? "version " + version.from
                                    : fmt::format("versions {} to {}", version.from, version.to);
}

/// nullopt: the version is known and is another.
std::optional<std::string> version_text(const VersionCondition& version, const Stack& stack) {
  std::string found;
  if (version.of)
    for (const Frame& frame : stack.frames)
      if (re2::RE2::PartialMatch(frame.module, *version.of, &found) && !found.empty()) break;
  if (found.empty()) return fmt::format(" The version is unknown; this is about {}.", range_text(version));
  const bool below = !version.from.empty() && version_less(found, version.from);
  // "1.20" ends with 1.20.9, not before 1.20.1.
  const bool above =
      !version.to.empty() && version_less(version.to, found) && !found.starts_with(version.to + ".");
  if (below || above) return std::nullopt;
  return fmt::format(" The version is {}, and this is about {}.", found, range_text(version));
}

}  // namespace

bool version_less(std::string_view left, std::string_view right) {
  const auto number = [](std::string_view& text) {
    unsigned long value = 0;
    const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(problem == std::errc{} ? static_cast<std::size_t>(rest - text.data()) : text.size());
    if (text.starts_with('.')) text.remove_prefix(1);
    return value;
  };
  while (!left.empty() || !right.empty()) {
    const unsigned long one = number(left);
    const unsigned long other = number(right);
    if (one != other) return one < other;
  }
  return false;
}

Result<std::vector<Signature>> signatures_from_text(std::string_view text, const std::string& name) {
  const json file = parse_json(text);
  if (json_string(file, "format") != "whomap-signatures")
    return fail(ErrorCode::input_kind, fmt::format("{} is not a file of signatures", name),
                "core/README.md describes the format");
  if (json_unsigned(file, "version") != 1)
    return fail(ErrorCode::input_kind, fmt::format("{}: this whomap reads version 1", name));
  const json* const list = json_member(file, "signatures");
  if (list == nullptr || !list->is_array())
    return fail(ErrorCode::input_damaged, fmt::format("{} has no list of signatures", name));
  std::vector<Signature> signatures;
  for (const json& each : *list) {
    SignatureReader reader(
        each, json_string(each, "id").value_or(fmt::format("signatures[{}]", signatures.size())));
    Signature signature = reader.read();
    if (!reader.problem().empty())
      return fail(ErrorCode::input_damaged, fmt::format("{}: {}", name, reader.problem()),
                  "core/README.md describes the format");
    signatures.push_back(std::move(signature));
  }
  return signatures;
}

Result<std::vector<Signature>> load_signatures(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return tl::make_unexpected(text.error());
  return signatures_from_text(*text, path);
}

void add_signatures(std::vector<Signature>& signatures, std::vector<Signature> more) {
  for (Signature& each : more) {
    const auto same = std::find_if(signatures.begin(), signatures.end(),
                                   [&](const Signature& known) { return known.id == each.id; });
    if (same != signatures.end())
      *same = std::move(each);
    else
      signatures.push_back(std::move(each));
  }
}

std::vector<Advice> known_causes(const std::vector<Signature>& signatures, const Stack& stack,
                                 std::string_view stack_class) {
  std::vector<Advice> advice;
  for (const Signature& signature : signatures) {
    if (!signature.classes.empty() &&
        std::find(signature.classes.begin(), signature.classes.end(), stack_class) == signature.classes.end())
      continue;
    const Fit fit = fits(signature, stack);
    if (fit == Fit::no) continue;
    const auto version = signature.version ? version_text(*signature.version, stack) : std::string();
    if (!version) continue;
    if (fit == Fit::yes) {
      advice.push_back({signature.id, signature.cause + *version, signature.remedy, signature.hazard,
                        signature.source, signature.certainty});
      continue;
    }
    // Without the deciding frame nothing is advised, and what is said is a step less sure.
    std::string holder;
    advice.push_back(
        {signature.id,
         fmt::format("Cannot tell: frames of {} have no names, so this is only possible: {}{} Its symbols "
                     "would decide.",
                     nameless_module(signature, stack, holder), signature.cause, *version),
         "", "", signature.source, signature.certainty == "A" ? "B" : "C"});
  }
  std::stable_sort(advice.begin(), advice.end(),
                   [](const Advice& left, const Advice& right) { return left.certainty < right.certainty; });
  return advice;
}

}  // namespace whomap
