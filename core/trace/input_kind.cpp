// SPDX-License-Identifier: Apache-2.0
#include "core/trace/input_kind.h"

#include <algorithm>

#include "core/process/vma.h"

namespace whomap {
namespace {

bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

std::string_view second_line(std::string_view text) {
  const std::size_t newline = text.find('\n');
  return newline == std::string_view::npos ? std::string_view{} : first_line(text.substr(newline + 1));
}

InputKind json_kind(std::string_view start) {
  // The format comes first in all files of ours; a longer look would find it in a quoted string.
  const std::string_view head = start.substr(0, 256);
  if (holds(head, "\"whomap-trace\"")) return InputKind::whomap_trace;
  if (holds(head, "\"whomap-plan\"")) return InputKind::whomap_plan;
  if (holds(head, "\"whomap-report\"")) return InputKind::whomap_report;
  if (holds(head, "\"whomap-watch\"")) return InputKind::whomap_watch;
  return InputKind::json;
}

/// A call as strace prints it: `mmap(NULL, 8192, ...) = 0x7f...`, perhaps behind "[pid 12] " or a time.
bool is_strace(std::string_view start) {
  for (int lines = 0; lines < 50 && !start.empty(); ++lines) {
    const std::string_view line = first_line(start);
    for (const std::string_view call : {"mmap(", "munmap(", "mremap(", "brk(", "execve("})
      if (holds(line, call) && (holds(line, ") = ") || holds(line, ")  ") || holds(line, "<unfinished ...>")))
        return true;
    if (line.size() == start.size()) break;
    start.remove_prefix(line.size() + 1);
  }
  return false;
}

/// "1234:   ./server --port 80", then the names of the columns, or at once the first region.
InputKind pmap_kind(std::string_view start) {
  const std::string_view head = first_line(start);
  const std::size_t colon = head.find_first_not_of("0123456789");
  if (colon == 0 || colon == std::string_view::npos || head.substr(colon, 2) != ": ") return InputKind::text;
  const std::string_view columns = second_line(start);
  const std::size_t name = columns.find_first_not_of(' ');
  if (name != std::string_view::npos && columns.substr(name).starts_with("Address ")) return InputKind::pmap;
  const std::size_t digits = columns.find_first_not_of("0123456789abcdef");
  return digits != std::string_view::npos && digits >= 8 && columns[digits] == ' ' ? InputKind::pmap_plain
                                                                                   : InputKind::text;
}

bool is_binary(std::string_view start) {
  return std::any_of(start.begin(), start.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && c != '\n' && c != '\t' && c != '\r' && c != '\f' && c != '\x1b';
  });
}

}  // namespace

InputKind input_kind(std::string_view start) {
  if (start.empty()) return InputKind::empty;
  if (start.starts_with("\x1f\x8b")) return InputKind::gzip;
  if (start.starts_with("\x7f"
                        "ELF"))
    return InputKind::elf;
  if (start.starts_with("PERFILE2")) return InputKind::perf_data;
  const std::size_t content = start.find_first_not_of(" \t\r\n");
  if (content == std::string_view::npos) return InputKind::text;
  // Before the look for binary bytes: damage further down does not make a trace another kind of file.
  if (start[content] == '{') return json_kind(start.substr(content));
  if (is_binary(start)) return InputKind::binary;
  if (parse_maps(std::string(first_line(start)) + "\n").vmas.size() == 1)
    return second_line(start).starts_with("Size:") ? InputKind::smaps : InputKind::maps;
  if (const InputKind pmap = pmap_kind(start); pmap != InputKind::text) return pmap;
  if (holds(start, "Syscall returned: rax") || (holds(start, "#0  0x") && holds(start, " in ")))
    return InputKind::gdb_log;
  if (holds(start, "syscalls:sys_e") || holds(start, "sys_exit_mmap")) return InputKind::perf_script;
  if (is_strace(start)) return InputKind::strace;
  if (start.starts_with("Attaching ") || start.starts_with("PID/TID: ") || holds(start, "\nPID/TID: ") ||
      holds(start, "\n@"))
    return InputKind::bpftrace;
  return InputKind::text;
}

std::string_view describe(InputKind kind) {
  switch (kind) {
    case InputKind::empty: return "an empty file";
    case InputKind::whomap_trace: return "a whomap trace";
    case InputKind::whomap_plan: return "a whomap plan";
    case InputKind::whomap_report: return "a whomap report";
    case InputKind::whomap_watch: return "a whomap watch file";
    case InputKind::json: return "JSON of another kind";
    case InputKind::maps: return "saved /proc/PID/maps";
    case InputKind::smaps: return "saved /proc/PID/smaps";
    case InputKind::pmap: return "the output of pmap -X";
    case InputKind::pmap_plain: return "the output of pmap without -X";
    case InputKind::gdb_log: return "the log of a GDB script";
    case InputKind::perf_script: return "the output of perf script";
    case InputKind::perf_data: return "the data file of perf record";
    case InputKind::strace: return "the output of strace";
    case InputKind::bpftrace: return "the output of bpftrace";
    case InputKind::gzip: return "a gzip file";
    case InputKind::elf: return "an ELF file";
    case InputKind::binary: return "a binary file";
    case InputKind::text: return "text of another kind";
  }
  return "a file of another kind";
}

}  // namespace whomap
