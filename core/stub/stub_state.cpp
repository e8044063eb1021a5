// SPDX-License-Identifier: Apache-2.0
#include "core/stub/stub_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/base/json_fields.h"
#include "core/process/memory.h"
#include "core/process/own_memory.h"

namespace whomap {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* format_name = "whomap-stub-state";
constexpr std::uint64_t format_version = 1;

std::string hex_bytes(const std::vector<std::uint8_t>& bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

/// Calls read(fields) for each object of the list; the text of the first problem, empty when there is none.
template <class Read>
std::string for_each(JsonFields& fields, const char* name, Read read) {
  const json* const list = fields.array(name);
  if (list == nullptr) return fields.problem();
  for (const json& each : *list) {
    JsonFields of_each(each, name);
    read(of_each);
    if (!of_each.problem().empty()) return of_each.problem();
  }
  return {};
}

/// Only its owner can look into it, and its owner is this user: nobody else can have put a file or a link
/// there.
Result<void> check_private(const std::string& folder) {
  struct stat there {};
  if (::lstat(folder.c_str(), &there) != 0)
    return fail(ErrorCode::output_unwritable, fmt::format("cannot use {}", folder),
                "name another folder in WHOMAP_STATE_DIR", errno);
  if (!S_ISDIR(there.st_mode) || there.st_uid != ::geteuid() || (there.st_mode & 0077) != 0)
    return fail(ErrorCode::output_unwritable, fmt::format("{} is not a private folder of this user", folder),
                "it must be a folder of mode 0700; name another one in WHOMAP_STATE_DIR");
  return {};
}

/// What to do when a state is there and cannot be understood.
std::string unknown_remedy(const std::string& path) {
  return fmt::format(
      "restart the process, which may have stubs of an earlier trace in its code; or remove {} when its code "
      "is as in its files",
      path);
}

/// Opened without waiting for whoever would write to a FIFO, and read no further than a state can go.
Result<std::string> read_state_file(const std::string& path) {
  constexpr std::size_t most_bytes = std::size_t{64} << 20;
  const std::string remedy = unknown_remedy(path);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat there {};
  if (!file.valid() && errno != ELOOP)
    return fail(ErrorCode::input_unreadable, fmt::format("cannot open {}", path), remedy, errno);
  if (!file.valid() || ::fstat(file.get(), &there) != 0 || !S_ISREG(there.st_mode))
    return fail(ErrorCode::input_damaged, fmt::format("{} is not a regular file", path), remedy);
  if (static_cast<std::uint64_t>(there.st_size) > most_bytes)
    return fail(ErrorCode::input_damaged, fmt::format("{} is too large for a state file", path), remedy);
  std::string text(static_cast<std::size_t>(there.st_size), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(ErrorCode::input_unreadable, fmt::format("cannot read {}", path), remedy, errno);
    if (got == 0) text.resize(done);
    done += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace

ordered_json to_json(const StubState& state) {
  ordered_json out;
  out["format"] = format_name;
  out["version"] = format_version;
  out["pid"] = state.target.pid;
  out["start_time"] = state.target.start_time;
  out["exe"] = json_text(state.target.exe);
  out["nonce"] = state.nonce;
  for (const char* list : {"memory", "jumps", "carried", "traps", "breakpoints"})
    out[list] = ordered_json::array();
  for (const PlacedMemory& each : state.memory)
    out["memory"].push_back(
        {{"address", hex_string(each.address)}, {"size", each.size}, {"kind", each.kind}});
  for (const auto& [name, jumps] : {std::pair{"jumps", &state.jumps}, {"carried", &state.carried}})
    for (const PlacedJump& each : *jumps)
      out[name].push_back({{"site", each.site},
                           {"address", hex_string(each.address)},
                           {"original", hex_bytes(each.original)},
                           {"jump", hex_bytes(each.jump)}});
  for (const TrapPoint& each : state.traps)
    out["traps"].push_back(
        {{"address", hex_string(each.address)}, {"site", each.site}, {"number", each.number}});
  for (const CodeGuard::Original& each : state.breakpoints)
    out["breakpoints"].push_back({{"address", hex_string(each.address)},
                                  {"original", each.byte},
                                  {"inode", each.inode},
                                  {"file_offset", each.file_offset}});
  out["trap_words"] = hex_string(state.trap_words);
  out["data"] = hex_string(state.data);
  out["syscall_address"] = hex_string(state.syscall_address);
  out["own_rooms"] = hex_string(state.own_rooms);
  out["padding"] = {{"address", hex_string(state.padding.address)},
                    {"original", hex_bytes(state.padding.original)}};
  out["trap_handler"] = hex_string(state.trap_handler);
  out["action_address"] = hex_string(state.action_address);
  out["old_action"] = hex_bytes(state.old_action);
  return out;
}

Result<StubState> stub_state_from_json(const json& object, const std::string& path) {
  JsonFields fields(object, "");
  StubState state;
  if (fields.text("format") != format_name || fields.unsigned_integer("version") != format_version)
    return fail(ErrorCode::input_kind, fmt::format("{} is no state file of this version", path));
  state.target.pid = static_cast<pid_t>(fields.unsigned_integer("pid", INT32_MAX));
  state.target.start_time = fields.unsigned_integer("start_time");
  state.target.exe = fields.text("exe");
  state.nonce = fields.text("nonce");
  std::string problem = for_each(fields, "memory", [&](JsonFields& each) {
    state.memory.push_back({each.address("address"), each.unsigned_integer("size"), each.text("kind")});
  });
  for (const auto& [name, jumps] : {std::pair{"jumps", &state.jumps}, {"carried", &state.carried}}) {
    if (!problem.empty()) break;
    problem = for_each(fields, name, [&into = *jumps](JsonFields& each) {
      into.push_back({static_cast<std::uint32_t>(each.unsigned_integer("site", UINT32_MAX)),
                      each.address("address"), each.hex_bytes("original"), each.hex_bytes("jump")});
    });
  }
  if (problem.empty())
    problem = for_each(fields, "traps", [&](JsonFields& each) {
      state.traps.push_back({each.address("address"),
                             static_cast<std::uint32_t>(each.unsigned_integer("site", UINT32_MAX)),
                             each.integer("number")});
    });
  if (problem.empty())
    problem = for_each(fields, "breakpoints", [&](JsonFields& each) {
      state.breakpoints.push_back({each.address("address"),
                                   static_cast<std::uint8_t>(each.unsigned_integer("original", UINT8_MAX)),
                                   each.unsigned_integer("inode"), each.unsigned_integer("file_offset")});
    });
  state.trap_words = fields.address("trap_words");
  state.data = fields.address("data");
  state.syscall_address = fields.address("syscall_address");
  // A state outlives the whomap that wrote it, and an earlier one had no rooms.
  if (json_member(object, "own_rooms") != nullptr) state.own_rooms = fields.address("own_rooms");
  if (const json* const padding = json_member(object, "padding"); padding != nullptr) {
    JsonFields of_padding(*padding, "padding");
    state.padding = {of_padding.address("address"), of_padding.hex_bytes("original")};
    if (problem.empty()) problem = of_padding.problem();
    if (problem.empty() && state.padding.address != 0 && state.padding.original.size() != call_room_size)
      problem = "padding.original has not the size of a room";
  }
  state.trap_handler = fields.address("trap_handler");
  state.action_address = fields.address("action_address");
  state.old_action = fields.hex_bytes("old_action");
  if (problem.empty()) problem = fields.problem();
  for (const std::vector<PlacedJump>* const jumps : {&state.jumps, &state.carried})
    for (const PlacedJump& each : *jumps)
      if (each.original.size() != each.jump.size() || each.jump.empty())
        problem = "jumps.original is not as long as jumps.jump";
  if (!problem.empty()) return fail(ErrorCode::input_damaged, fmt::format("{}: {}", path, problem));
  return state;
}

Result<std::string> state_folder() {
  std::string folder;
  if (const char* const named = std::getenv("WHOMAP_STATE_DIR"); named != nullptr && *named != 0)
    folder = named;
  else if (::geteuid() == 0)
    folder = "/run/whomap";
  else if (const char* const runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/')
    folder = fmt::format("{}/whomap", runtime);
  else
    folder = fmt::format("/run/user/{}/whomap", ::getuid());
  // What keeps the stubs in runs in another working directory.
  if (folder.front() != '/')
    return fail(ErrorCode::output_unwritable,
                fmt::format("WHOMAP_STATE_DIR is {}, which is no absolute path", folder),
                "name the folder from / on");
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return fail(
        ErrorCode::output_unwritable, fmt::format("cannot create {}", folder),
        "what is changed in a process is written down there first; name another folder in WHOMAP_STATE_DIR",
        errno);
  if (auto is_private = check_private(folder); !is_private) return tl::make_unexpected(is_private.error());
  return folder;
}

Result<std::string> state_path(const TargetIdentity& target) {
  auto folder = state_folder();
  if (!folder) return folder;
  return fmt::format("{}/{}-{}.state", *folder, target.pid, target.start_time);
}

Result<UniqueFd> lock_state(const TargetIdentity& target) {
  const auto folder = state_folder();
  if (!folder) return tl::make_unexpected(folder.error());
  const std::string path = fmt::format("{}/{}-{}.lock", *folder, target.pid, target.start_time);
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid())
    return fail(ErrorCode::output_unwritable, fmt::format("cannot create {}", path), {}, errno);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  return fail(ErrorCode::already_traced, fmt::format("process {} is traced by another whomap", target.pid),
              "wait for it to end, or end it (Ctrl-C)");
}

Result<void> save(const StubState& state) {
  const auto path = state_path(state.target);
  if (!path) return tl::make_unexpected(path.error());
  const std::string unfinished = fmt::format("{}.{}", *path, ::getpid());
  auto file = OutputFile::create(unfinished, true);
  if (!file) return tl::make_unexpected(file.error());
  auto written = file->write(dump_line(to_json(state)) + "\n");
  if (written) written = file->finish();
  if (written && std::rename(unfinished.c_str(), path->c_str()) != 0)
    written = fail(ErrorCode::output_unwritable, fmt::format("cannot write {}", *path), {}, errno);
  if (!written) ::unlink(unfinished.c_str());
  return written;
}

Result<StubState> read_state(const std::string& path) {
  const auto text = read_state_file(path);
  if (!text) return tl::make_unexpected(text.error());
  const json parsed = parse_json(*text);
  auto state = parsed.is_discarded() ? fail(ErrorCode::input_damaged, fmt::format("{} is not JSON", path))
                                     : stub_state_from_json(parsed, path);
  if (!state) state.error().remedy = unknown_remedy(path);
  return state;
}

Result<std::optional<StubState>> load_state(const TargetIdentity& target) {
  const auto path = state_path(target);
  if (!path) return tl::make_unexpected(path.error());
  struct stat there {};
  if (::lstat(path->c_str(), &there) != 0) return std::optional<StubState>{};
  auto state = read_state(*path);
  if (!state) return tl::make_unexpected(state.error());
  if (state->target.pid != target.pid || state->target.start_time != target.start_time)
    return fail(ErrorCode::process_replaced, fmt::format("{} is of another process", *path));
  return std::optional<StubState>(std::move(*state));
}

std::vector<AddressRange> own_memory(const StubState& state) {
  std::vector<AddressRange> ranges;
  for (const PlacedMemory& each : state.memory) ranges.push_back({each.address, each.address + each.size});
  return ranges;
}

std::vector<AddressRange> own_memory(const TargetIdentity& target) {
  const auto state = load_state(target);
  if (!state || !*state) return {};
  for (const PlacedMemory& each : (*state)->memory)
    if (each.kind == "code" &&
        nonce_of_header(read_bytes(target.pid, each.address, own_header_size)) == (*state)->nonce)
      return own_memory(**state);
  return {};
}

void forget_state(const TargetIdentity& target) {
  if (const auto path = state_path(target)) ::unlink(path->c_str());
}

void forget_ended() {
  const auto folder = state_folder();
  if (!folder) return;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(*folder, problem)) {
    unsigned pid = 0;
    unsigned long long start_time = 0;
    const std::string extension = entry.path().extension().string();
    if (std::sscanf(entry.path().filename().c_str(), "%u-%llu.", &pid, &start_time) != 2 ||
        (extension != ".state" && extension != ".lock"))
      continue;
    const auto stat = read_file(fmt::format("/proc/{}/stat", pid));
    const auto now = stat ? parse_start_time(*stat) : tl::make_unexpected(stat.error());
    if (!now || *now != start_time) std::filesystem::remove(entry.path(), problem);
  }
}

}  // namespace whomap
