// SPDX-License-Identifier: Apache-2.0
#include "core/match/frame_roles.h"

#include <algorithm>

#include <fmt/format.h>
#include <re2/re2.h>
#include <re2/set.h>

#include "core/base/json_fields.h"
#include "core/match/frames_json.h"

namespace whomap {
namespace {

using nlohmann::json;

std::optional<FrameRole> role_named(std::string_view name) {
  if (name == "program") return FrameRole::program;
  if (name == "libc") return FrameRole::libc;
  if (name == "allocator") return FrameRole::allocator;
  if (name == "standard") return FrameRole::standard;
  if (name == "loader") return FrameRole::loader;
  if (name == "hook") return FrameRole::hook;
  return std::nullopt;
}

std::optional<Runtime> runtime_named(std::string_view name) {
  if (name == "cpython") return Runtime::cpython;
  if (name == "go") return Runtime::go;
  if (name == "jvm") return Runtime::jvm;
  if (name == "v8") return Runtime::v8;
  return std::nullopt;
}

re2::RE2::Options quiet() {
  re2::RE2::Options options;
  options.set_log_errors(false);
  return options;
}

FrameRule read_rule(const json& object, JsonFields& fields) {
  FrameRule rule;
  const auto role = role_named(fields.text("role"));
  if (!role) fields.wrong("role", "program, libc, allocator, standard, loader or hook");
  rule.role = role.value_or(FrameRole::program);
  if (json_member(object, "runtime") != nullptr) {
    rule.runtime = runtime_named(fields.text("runtime"));
    if (!rule.runtime) fields.wrong("runtime", "cpython, go, jvm or v8");
  }
  rule.module = json_string(object, "module").value_or("");
  rule.function = json_string(object, "function").value_or("");
  if (rule.module.empty() && rule.function.empty()) fields.wrong("function", "there, or module");
  for (const auto& [name, text] : {std::pair("module", &rule.module), std::pair("function", &rule.function)})
    if (const re2::RE2 expression(*text, quiet()); !expression.ok())
      fields.wrong(name, fmt::format("an expression: {}", expression.error()));
  return rule;
}

}  // namespace

Result<std::vector<FrameRule>> frame_rules_from_text(std::string_view text, const std::string& name) {
  const json file = parse_json(text);
  const json* const list = json_member(file, "frames");
  if (list == nullptr) return std::vector<FrameRule>{};
  if (!list->is_array())
    return fail(ErrorCode::input_damaged, fmt::format("{}: frames is not a list", name),
                "core/README.md describes the format");
  std::vector<FrameRule> rules;
  for (const json& each : *list) {
    JsonFields fields(each, fmt::format("frames[{}]", rules.size()));
    rules.push_back(read_rule(each, fields));
    if (!fields.problem().empty())
      return fail(ErrorCode::input_damaged, fmt::format("{}: {}", name, fields.problem()),
                  "core/README.md describes the format");
  }
  return rules;
}

/// All expressions of a kind at once: a frame is looked at two to four times, however many rules there are.
struct FrameRoles::Expressions {
  Expressions() : modules(quiet(), re2::RE2::UNANCHORED), functions(quiet(), re2::RE2::UNANCHORED) {}
  re2::RE2::Set modules, functions;
  std::vector<int> module_of, function_of;  ///< by rule: index in the set, -1: any
};

FrameRoles::FrameRoles(std::vector<FrameRule> rules) : rules_(std::move(rules)) {
  auto expressions = std::make_unique<Expressions>();
  for (const FrameRule& rule : rules_) {
    expressions->module_of.push_back(rule.module.empty() ? -1
                                                         : expressions->modules.Add(rule.module, nullptr));
    expressions->function_of.push_back(
        rule.function.empty() ? -1 : expressions->functions.Add(rule.function, nullptr));
  }
  expressions->modules.Compile();
  expressions->functions.Compile();
  expressions_ = std::move(expressions);
}

FrameRoles::~FrameRoles() = default;

const FrameRoles& FrameRoles::shipped() {
  static const FrameRoles roles(frame_rules_from_text(frames_json, "frames.json").value());
  return roles;
}

std::shared_ptr<const FrameRoles> FrameRoles::with(std::vector<FrameRule> own) {
  const std::vector<FrameRule>& shipped_rules = shipped().rules_;
  own.insert(own.end(), shipped_rules.begin(), shipped_rules.end());
  return std::make_shared<const FrameRoles>(std::move(own));
}

const FrameRule* FrameRoles::rule_of(const Frame& frame, std::string_view module) const {
  std::vector<int> modules;
  std::vector<int> functions;
  const auto match = [](const re2::RE2::Set& set, std::string_view text, std::vector<int>& found) {
    std::vector<int> here;
    if (set.Match(re2::StringPiece(text.data(), text.size()), &here))
      found.insert(found.end(), here.begin(), here.end());
  };
  match(expressions_->modules, module, modules);
  if (frame.function) {
    match(expressions_->functions, *frame.function, functions);
    const std::string qualified = qualified_name(*frame.function);
    if (qualified != *frame.function) match(expressions_->functions, qualified, functions);
    const std::string_view plain = plain_name(frame);
    if (plain != qualified) match(expressions_->functions, plain, functions);
  }
  const auto fits = [](int wanted, const std::vector<int>& found) {
    return wanted < 0 || std::find(found.begin(), found.end(), wanted) != found.end();
  };
  for (std::size_t i = 0; i < rules_.size(); ++i)
    if (fits(expressions_->module_of[i], modules) && fits(expressions_->function_of[i], functions))
      return &rules_[i];
  return nullptr;
}

std::string_view plain_name(const Frame& frame) {
  if (!frame.function) return {};
  std::string_view name = *frame.function;
  // glibc's internal alias of __libc_malloc is __GI___libc_malloc.
  for (const std::string_view prefix : {"__GI_", "__libc_", "__"})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  // Symbol versions ("malloc@@GLIBC_2.2.5") and clones ("_int_malloc.isra.0").
  if (!name.starts_with("operator")) name = name.substr(0, name.find_first_of("@.("));
  return name;
}

}  // namespace whomap
