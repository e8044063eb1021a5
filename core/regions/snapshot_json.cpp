// SPDX-License-Identifier: Apache-2.0
// Snapshots in trace and watch files; core/README.md documents the fields.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/regions/snapshot.h"

namespace whomap {
namespace {

std::string permissions(const Vma& vma) {
  return {vma.readable ? 'r' : '-', vma.writable ? 'w' : '-', vma.executable ? 'x' : '-',
          vma.shared ? 's' : 'p'};
}

bool read_permissions(std::string_view text, Vma& vma) {
  if (text.size() != 4) return false;
  vma.readable = text[0] == 'r';
  vma.writable = text[1] == 'w';
  vma.executable = text[2] == 'x';
  vma.shared = text[3] == 's';
  return true;
}

void put(nlohmann::ordered_json& json, const char* name, const std::optional<std::uint64_t>& value) {
  if (value) json[name] = *value;
}

}  // namespace

nlohmann::ordered_json to_json(const Region& region) {
  const Vma& vma = region.vma;
  nlohmann::ordered_json json{
      {"start", hex_string(vma.start)}, {"end", hex_string(vma.end)}, {"perms", permissions(vma)}};
  if (vma.inode != 0) {
    json["offset"] = hex_string(vma.offset);
    json["device"] = fmt::format("{:x}:{:x}", vma.device_major, vma.device_minor);
    json["inode"] = vma.inode;
  }
  if (!vma.name.empty()) {
    const std::string name = json_text(vma.name);
    json["name"] = name;
    // A path is any bytes; where JSON cannot hold them, the exact ones follow.
    if (name != vma.name) {
      std::string hex;
      for (const char c : vma.name) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
      json["name_hex"] = hex;
    }
  }
  put(json, "rss", region.rss);
  put(json, "pss", region.pss);
  put(json, "anonymous", region.anonymous);
  put(json, "swap", region.swap);
  put(json, "lazy_free", region.lazy_free);
  put(json, "anon_huge_pages", region.anon_huge_pages);
  put(json, "hugetlb", region.hugetlb);
  if (!region.vm_flags.empty()) json["vm_flags"] = json_text(region.vm_flags);
  if (region.deleted && *region.deleted != Deleted::no)
    json["deleted"] = region.deleted == Deleted::yes ? nlohmann::ordered_json(true) : nullptr;
  else if (region.deleted && deleted_by_name(vma) == Deleted::unknown)
    json["deleted"] = false;
  for (const auto& [name, value] : region.unknown) json["unknown"][json_text(name)] = json_text(value);
  return json;
}

namespace {

std::optional<std::string> bytes_of_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    unsigned value = 0;
    const auto [rest, problem] = std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    if (problem != std::errc{} || rest != hex.data() + i + 2) return std::nullopt;
    bytes += static_cast<char>(value);
  }
  return bytes;
}

bool read_device(std::string_view text, Vma& vma) {
  const char* const end = text.data() + text.size();
  const auto [colon, problem] = std::from_chars(text.data(), end, vma.device_major, 16);
  if (problem != std::errc{} || colon == end || *colon != ':') return false;
  const auto [rest, problem2] = std::from_chars(colon + 1, end, vma.device_minor, 16);
  return problem2 == std::errc{} && rest == end;
}

/// A size in bytes; nullopt also for one that no process can have, so that differences stay in range.
std::optional<std::uint64_t> json_size(const nlohmann::json& json, const char* name) {
  constexpr std::uint64_t address_space = std::uint64_t{1} << 57;  // x86-64 with five-level page tables
  const auto size = json_unsigned(json, name);
  return size && *size <= address_space ? size : std::nullopt;
}

}  // namespace

std::optional<Region> region_from_json(const nlohmann::json& json) {
  Region region;
  Vma& vma = region.vma;
  const auto start = json_hex(json, "start");
  const auto end = json_hex(json, "end");
  const auto perms = json_string(json, "perms");
  if (!start || !end || *start >= *end || !perms || !read_permissions(*perms, vma)) return std::nullopt;
  vma.start = *start;
  vma.end = *end;
  vma.offset = json_hex(json, "offset").value_or(0);
  if (const auto device = json_string(json, "device"); device && !read_device(*device, vma))
    return std::nullopt;
  vma.inode = json_unsigned(json, "inode").value_or(0);
  vma.name = json_string(json, "name").value_or("");
  if (const auto hex = json_string(json, "name_hex")) {
    const auto bytes = bytes_of_hex(*hex);
    if (!bytes) return std::nullopt;
    vma.name = *bytes;
  }
  region.rss = json_size(json, "rss");
  region.pss = json_size(json, "pss");
  region.anonymous = json_size(json, "anonymous");
  region.swap = json_size(json, "swap");
  region.lazy_free = json_size(json, "lazy_free");
  region.anon_huge_pages = json_size(json, "anon_huge_pages");
  region.hugetlb = json_size(json, "hugetlb");
  region.vm_flags = json_string(json, "vm_flags").value_or("");
  region.deleted = deleted_by_name(vma);
  if (const auto deleted = json_bool(json, "deleted"); deleted && region.deleted)
    region.deleted = *deleted ? Deleted::yes : Deleted::no;
  if (const nlohmann::json* const unknown = json_member(json, "unknown"); unknown && unknown->is_object())
    for (const auto& [name, value] : unknown->items())
      if (value.is_string()) region.unknown.emplace_back(name, value.get<std::string>());
  return region;
}

namespace {

/// Not looked at when the snapshot says nothing of them.
std::optional<ThreadStacks> stacks_from_json(const nlohmann::json& json) {
  ThreadStacks stacks;
  const nlohmann::json* const pointers = json_member(json, "stack_pointers");
  if (pointers == nullptr) return stacks;
  if (!pointers->is_array()) return std::nullopt;
  stacks.looked = true;
  stacks.unseen = json_unsigned(json, "threads_unseen").value_or(0);
  stacks.limit = json_size(json, "stack_limit");
  for (const nlohmann::json& each : *pointers) {
    if (!each.is_array() || each.size() != 2 || !each[0].is_number_integer() || !each[1].is_string())
      return std::nullopt;
    const auto pointer = parse_hex(each[1].get_ref<const std::string&>());
    if (!pointer) return std::nullopt;
    stacks.seen.push_back({each[0].get<pid_t>(), *pointer});
  }
  std::sort(stacks.seen.begin(), stacks.seen.end(),
            [](const ThreadStack& left, const ThreadStack& right) { return left.pointer < right.pointer; });
  return stacks;
}

/// ["0x7f00-0x7f10", ...]
nlohmann::ordered_json ranges_to_json(const RangeSet& ranges) {
  auto list = nlohmann::ordered_json::array();
  for (const AddressRange& range : ranges) list.push_back(fmt::format("{:#x}-{:#x}", range.start, range.end));
  return list;
}

std::optional<RangeSet> ranges_from_json(const nlohmann::json* list) {
  if (list == nullptr || !list->is_array()) return std::nullopt;
  std::vector<AddressRange> ranges;
  for (const nlohmann::json& each : *list) {
    if (!each.is_string()) return std::nullopt;
    const std::string_view text = *each.get_ptr<const std::string*>();
    const std::size_t dash = text.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto start = parse_hex(text.substr(0, dash));
    const auto end = parse_hex(text.substr(dash + 1));
    if (!start || !end || *start >= *end) return std::nullopt;
    ranges.push_back({*start, *end});
  }
  return make_range_set(std::move(ranges));
}

}  // namespace

nlohmann::ordered_json to_json(const MemoryTotals& totals) {
  return {{"rss_anon", optional_json(totals.rss_anon)},
          {"rss_file", optional_json(totals.rss_file)},
          {"rss_shmem", optional_json(totals.rss_shmem)},
          {"swap", optional_json(totals.swap)},
          {"page_tables", optional_json(totals.page_tables)}};
}

MemoryTotals totals_from_json(const nlohmann::json& json) {
  return {json_size(json, "rss_anon"), json_size(json, "rss_file"), json_size(json, "rss_shmem"),
          json_size(json, "swap"), json_size(json, "page_tables")};
}

nlohmann::ordered_json to_json_without_regions(const Snapshot& snapshot) {
  nlohmann::ordered_json json{{"time_ns", snapshot.time_ns}, {"duration_ns", snapshot.duration_ns}};
  json["totals"] = to_json(snapshot.totals);
  json["threads"] = optional_json(snapshot.threads);
  if (snapshot.stacks.looked) {
    json["stack_pointers"] = nlohmann::ordered_json::array();
    for (const ThreadStack& each : snapshot.stacks.seen)
      json["stack_pointers"].push_back({each.thread, hex_string(each.pointer)});
    json["threads_unseen"] = snapshot.stacks.unseen;
    json["stack_limit"] = optional_json(snapshot.stacks.limit);
  }
  if (!snapshot.without_smaps.empty()) json["without_smaps"] = json_text(snapshot.without_smaps);
  if (snapshot.overlaps != 0) json["overlaps"] = snapshot.overlaps;
  if (!snapshot.unparsed.empty()) {
    json["unparsed"] = nlohmann::ordered_json::array();
    for (const std::string& line : snapshot.unparsed) json["unparsed"].push_back(json_text(line));
  }
  if (snapshot.pages)
    json["pages"] = {{"looked_at", ranges_to_json(snapshot.pages->looked_at)},
                     {"resident", ranges_to_json(snapshot.pages->resident)}};
  return json;
}

nlohmann::ordered_json to_json(const Snapshot& snapshot) {
  nlohmann::ordered_json json = to_json_without_regions(snapshot);
  json["regions"] = nlohmann::ordered_json::array();
  for (const Region& region : snapshot.regions) json["regions"].push_back(to_json(region));
  return json;
}

Result<Snapshot> snapshot_from_json(const nlohmann::json& json) {
  Snapshot snapshot;
  const auto time = json_unsigned(json, "time_ns");
  const nlohmann::json* const regions = json_member(json, "regions");
  if (!time || regions == nullptr || !regions->is_array())
    return fail(ErrorCode::input_damaged, "a snapshot has no time or no regions");
  snapshot.time_ns = *time;
  snapshot.duration_ns = json_unsigned(json, "duration_ns").value_or(0);
  if (const nlohmann::json* const totals = json_member(json, "totals"))
    snapshot.totals = totals_from_json(*totals);
  snapshot.threads = json_unsigned(json, "threads");
  if (auto stacks = stacks_from_json(json))
    snapshot.stacks = std::move(*stacks);
  else
    return fail(ErrorCode::input_damaged, "a snapshot has stack pointers that are none");
  snapshot.without_smaps = json_string(json, "without_smaps").value_or("");
  snapshot.overlaps = json_unsigned(json, "overlaps").value_or(0);
  if (const nlohmann::json* const unparsed = json_member(json, "unparsed"); unparsed && unparsed->is_array())
    for (const nlohmann::json& line : *unparsed)
      if (line.is_string()) snapshot.unparsed.push_back(line.get<std::string>());
  for (const nlohmann::json& each : *regions) {
    auto region = region_from_json(each);
    if (!region) return fail(ErrorCode::input_damaged, "a snapshot has a region that is not one");
    if (!snapshot.regions.empty() && snapshot.regions.back().vma.end > region->vma.start)
      return fail(ErrorCode::input_damaged, "a snapshot has regions that overlap or are out of order");
    snapshot.regions.push_back(std::move(*region));
  }
  if (const nlohmann::json* const pages = json_member(json, "pages")) {
    auto looked_at = ranges_from_json(json_member(*pages, "looked_at"));
    auto resident = ranges_from_json(json_member(*pages, "resident"));
    if (!looked_at || !resident) return fail(ErrorCode::input_damaged, "a snapshot has pages that are none");
    RangeSet within = intersect(*looked_at, *resident);
    snapshot.pages = ResidentPages{std::move(*looked_at), std::move(within)};
  }
  return snapshot;
}

}  // namespace whomap
