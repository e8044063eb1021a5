// SPDX-License-Identifier: Apache-2.0
// The plan as JSON: {"format":"whomap-plan","version":1,...}. Addresses are hex strings, because JSON numbers
// above 2^53 do not survive every reader.
#include "core/plan/plan.h"

#include <array>
#include <bit>
#include <string_view>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/base/json_fields.h"

namespace whomap {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view format_name = "whomap-plan";
constexpr int format_version = 1;
constexpr std::uint64_t largest_pid = 4U << 20;
constexpr std::uint64_t longest_instruction = 15;                       // Intel SDM volume 2, 2.3.11
constexpr std::uint64_t smallest_page = 4096, largest_page = 1U << 20;  // Linux on any machine: 4 to 256 KiB

constexpr std::array number_kinds{"constant", "caller-constant", "variable"};
constexpr std::array watch_kinds{"return-breakpoint", "paired-breakpoints", "none"};

template <class Enum, std::size_t size>
Enum name_to_enum(JsonFields& fields, const char* field, const std::array<const char*, size>& names) {
  const std::string text = fields.text(field);
  for (std::size_t i = 0; i < size; ++i)
    if (text == names[i]) return static_cast<Enum>(i);
  fields.wrong(field, fmt::format("one of {}", fmt::join(names, ", ")));
  return static_cast<Enum>(size - 1);
}

/// Names come from the target and need not be UTF-8, which JSON strings must be. Control characters are no
/// problem there: such a name stays as it is.
std::string clean(const std::string& text) {
  std::string visible = text;
  std::erase_if(visible, [](char each) { return static_cast<unsigned char>(each) < 0x20 || each == 0x7F; });
  return printable(visible) == visible ? text : printable(text);
}

ordered_json site_to_json(const Site& site) {
  ordered_json out;
  out["id"] = site.id;
  out["module"] = clean(site.module);
  out["build_id"] = site.build_id;
  out["symbol"] = clean(site.symbol);
  out["symbol_offset"] = site.symbol_offset;
  out["entry"] = hex_string(site.entry);
  out["syscall_address"] = hex_string(site.syscall_address);
  out["return_address"] = hex_string(site.return_address);
  out["entry_offset"] = hex_string(site.entry_offset);
  out["syscall_offset"] = hex_string(site.syscall_offset);
  out["return_offset"] = hex_string(site.return_offset);
  out["kind"] = number_kinds[static_cast<std::size_t>(site.kind)];
  out["number"] = site.number ? ordered_json(*site.number) : ordered_json(nullptr);
  out["numbers"] = site.numbers;
  out["other_numbers"] = site.other_numbers;
  out["any_number"] = site.any_number;
  if (site.proof)
    out["proof"] = {{"address", hex_string(site.proof->address)}, {"instruction", site.proof->instruction}};
  else
    out["proof"] = nullptr;
  out["dispatcher"] = clean(site.dispatcher);
  out["condition_at_syscall"] = site.condition_at_syscall;
  out["condition_at_entry"] = site.condition_at_entry;
  out["watch"] = watch_kinds[static_cast<std::size_t>(site.watch)];
  out["reason"] = clean(site.reason);
  out["stub"] = {{"possible", site.stub.possible},
                 {"reason", clean(site.stub.reason)},
                 {"address", hex_string(site.stub.address)},
                 {"length", site.stub.length},
                 {"code", fmt::format("{:02x}", fmt::join(site.stub.code, ""))}};
  if (site.observed)
    out["observed"] = {{"per_second", site.observed->per_second}, {"at_least", site.observed->at_least}};
  out["code"] = fmt::format("{:02x}", fmt::join(site.code, ""));
  out["code_address"] = hex_string(site.code_address);
  return out;
}

Result<Site> site_from_json(const json& object, std::size_t index) {
  JsonFields fields(object, fmt::format("sites[{}]", index));
  Site site;
  site.id = static_cast<std::uint32_t>(fields.unsigned_integer("id", UINT32_MAX));
  site.module = fields.text("module");
  site.build_id = fields.text("build_id");
  site.symbol = fields.text("symbol");
  site.symbol_offset = fields.unsigned_integer("symbol_offset");
  site.entry = fields.address("entry");
  site.syscall_address = fields.address("syscall_address");
  site.return_address = fields.address("return_address");
  site.entry_offset = fields.address("entry_offset");
  site.syscall_offset = fields.address("syscall_offset");
  site.return_offset = fields.address("return_offset");
  site.kind = name_to_enum<NumberKind>(fields, "kind", number_kinds);
  site.number = fields.integer_or_null("number");
  site.numbers = fields.integers("numbers");
  site.other_numbers = fields.integers("other_numbers");
  site.any_number = fields.truth("any_number");
  if (const json* const proof = fields.object_or_null("proof")) {
    JsonFields of_proof(*proof, fmt::format("sites[{}].proof", index));
    site.proof = NumberProof{of_proof.address("address"), of_proof.text("instruction")};
    if (!of_proof.problem().empty()) return fail(ErrorCode::input_damaged, "the plan: " + of_proof.problem());
  }
  site.dispatcher = fields.text("dispatcher");
  site.condition_at_syscall = fields.text("condition_at_syscall");
  site.condition_at_entry = fields.text("condition_at_entry");
  site.watch = name_to_enum<WatchKind>(fields, "watch", watch_kinds);
  site.reason = fields.text("reason");
  if (object.contains("stub")) {  // version 1 began without it
    if (const json* const stub = fields.object_or_null("stub")) {
      JsonFields of_stub(*stub, fmt::format("sites[{}].stub", index));
      site.stub.possible = of_stub.truth("possible");
      site.stub.reason = of_stub.text("reason");
      site.stub.address = of_stub.address("address");
      site.stub.length = static_cast<std::uint8_t>(of_stub.unsigned_integer("length", longest_instruction));
      site.stub.code = of_stub.hex_bytes("code");
      if (!of_stub.problem().empty()) return fail(ErrorCode::input_damaged, "the plan: " + of_stub.problem());
    }
  } else {
    site.stub.reason = "the plan was made before stubs were looked for";
  }
  site.code = fields.hex_bytes("code");
  site.code_address = fields.address("code_address");
  if (fields.problem().empty() && site.id != index) fields.wrong("id", "its place in the list");
  if (!fields.problem().empty()) return fail(ErrorCode::input_damaged, "the plan: " + fields.problem());
  return site;
}

}  // namespace

ordered_json to_json(const Plan& plan) {
  ordered_json out;
  out["format"] = format_name;
  out["version"] = format_version;
  out["target"] = {{"pid", plan.target.pid},
                   {"start_time", plan.target.start_time},
                   {"exe", clean(plan.target.exe)},
                   {"comm", clean(plan.target.comm)}};
  out["machine"] = plan.machine;
  out["page_size"] = plan.page_size;
  out["watched"] = plan.watched;
  if (!plan.observed_how.empty()) out["observed_how"] = plan.observed_how;
  out["sites"] = ordered_json::array();
  for (const Site& site : plan.sites) out["sites"].push_back(site_to_json(site));
  out["notes"] = ordered_json::array();
  for (const std::string& note : plan.notes) out["notes"].push_back(clean(note));
  return out;
}

Result<Plan> plan_from_json(const json& object) {
  const auto format = object.is_object() ? object.find("format") : object.end();
  if (format == object.end() || !format->is_string() || *format != format_name)
    return fail(ErrorCode::input_kind, "this is not a whomap plan",
                "whomap plan -p PID --format json writes one");
  const auto version = object.find("version");
  if (version == object.end() || *version != format_version)
    return fail(ErrorCode::input_kind,
                fmt::format("the plan has version {}", version == object.end()        ? "(none)"
                                                       : version->is_number_integer() ? version->dump()
                                                                                      : "of another kind"),
                fmt::format("this whomap reads version {}", format_version));
  JsonFields fields(object, "");
  Plan plan;
  if (const json* const target = fields.object_or_null("target")) {
    JsonFields of_target(*target, "target");
    plan.target.pid = static_cast<pid_t>(of_target.unsigned_integer("pid", largest_pid));
    plan.target.start_time = of_target.unsigned_integer("start_time");
    plan.target.exe = of_target.text("exe");
    plan.target.comm = of_target.text("comm");
    if (!of_target.problem().empty())
      return fail(ErrorCode::input_damaged, "the plan: " + of_target.problem());
  }
  plan.machine = fields.text("machine");
  plan.page_size = fields.unsigned_integer("page_size");
  if (fields.problem().empty() && (!std::has_single_bit(plan.page_size) || plan.page_size < smallest_page ||
                                   plan.page_size > largest_page))
    fields.wrong("page_size", "a power of two from 4096 to 1 MiB");
  plan.watched = fields.integers("watched");
  if (const json* const sites = fields.array("sites")) {
    for (std::size_t i = 0; i < sites->size(); ++i) {
      auto site = site_from_json((*sites)[i], i);
      if (!site) return tl::make_unexpected(site.error());
      plan.sites.push_back(std::move(*site));
    }
  }
  plan.notes = fields.texts("notes");
  if (!fields.problem().empty()) return fail(ErrorCode::input_damaged, "the plan: " + fields.problem());
  return plan;
}

Result<Plan> load_plan(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return tl::make_unexpected(text.error());
  const json parsed = parse_json(*text);
  if (parsed.is_discarded())
    return fail(ErrorCode::input_damaged, fmt::format("{} is not JSON", path),
                "give a file that 'whomap plan --format json -o FILE' wrote");
  auto plan = plan_from_json(parsed);
  if (!plan) plan.error().happened = fmt::format("{}: {}", path, plan.error().happened);
  return plan;
}

}  // namespace whomap
