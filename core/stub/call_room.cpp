// SPDX-License-Identifier: Apache-2.0
#include "core/stub/call_room.h"

#include <elf.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "core/process/memory.h"
#include "core/stub/code_buffer.h"

namespace whomap {
namespace {

constexpr std::size_t nonce_size = 32;
constexpr std::array<std::uint8_t, 2> system_call{0x0F, 0x05};

/// movabs $value,%register (Intel SDM, MOV: REX.W + B8+rd io); `number` as instructions encode it.
void append_load(CodeBuffer& code, unsigned number, std::uint64_t value) {
  std::array<std::uint8_t, 10> load{static_cast<std::uint8_t>(number < 8 ? 0x48 : 0x49),
                                    static_cast<std::uint8_t>(0xB8 + number % 8)};
  std::memcpy(&load[2], &value, sizeof value);
  code.append(load);
}

/// mov $value,%register of 32 bits, which clears the upper half.
void append_small_load(CodeBuffer& code, unsigned number, std::uint32_t value) {
  if (number >= 8) code.append(std::array<std::uint8_t, 1>{0x41});
  std::array<std::uint8_t, 5> load{static_cast<std::uint8_t>(0xB8 + number % 8)};
  std::memcpy(&load[1], &value, sizeof value);
  code.append(load);
}

template <class T>
std::optional<T> read_object(pid_t pid, std::uint64_t address) {
  T object{};
  if (read_memory(pid, address, std::as_writable_bytes(std::span(&object, 1))) != sizeof object)
    return std::nullopt;
  return object;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

constexpr std::uint64_t page_size = 4096;  // of x86-64, the only machine with stubs

/// Behind the code of the image whose first page is mapped at `base`.
std::optional<CallRoom> padding_of(pid_t pid, const std::vector<Vma>& vmas, const Vma& base) {
  const auto header = read_object<Elf64_Ehdr>(pid, base.start);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_phentsize != sizeof(Elf64_Phdr))
    return std::nullopt;
  std::vector<Elf64_Phdr> segments(header->e_phnum);
  const auto bytes = std::as_writable_bytes(std::span(segments));
  if (header->e_phoff + bytes.size() > base.size() ||
      read_memory(pid, base.start + header->e_phoff, bytes) != bytes.size())
    return std::nullopt;
  const auto first =
      std::find_if(segments.begin(), segments.end(), [](const auto& each) { return each.p_type == PT_LOAD; });
  if (first == segments.end()) return std::nullopt;
  const std::uint64_t bias = base.start - first->p_vaddr / page_size * page_size;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0 || segment.p_filesz != segment.p_memsz)
      continue;
    const std::uint64_t end = bias + segment.p_vaddr + segment.p_memsz;
    constexpr std::uint64_t alignment = 16;
    const std::uint64_t room = round_up(end, alignment);
    if (room + call_room_size > round_up(end, page_size)) continue;
    const Vma* const vma = find_vma(vmas, end - 1);
    if (vma == nullptr || !vma->executable || vma->writable || vma->shared ||
        vma->end < room + call_room_size || vma->name != base.name)
      continue;
    CallRoom found{room, read_bytes(pid, room, call_room_size)};
    if (found.original.size() == call_room_size) return found;
  }
  return std::nullopt;
}

bool points_into(const CallRoom& room, std::uint64_t word) {
  return word >= room.address && word < room.address + call_room_size;
}

bool thread_may_return(const Target& target, const std::vector<Vma>& vmas, pid_t tid, const CallRoom& room) {
  constexpr std::uint64_t most = std::uint64_t{1} << 20;
  user_regs_struct registers{};
  if (::ptrace(PTRACE_GETREGS, tid, nullptr, &registers) != 0) return true;
  if (points_into(room, registers.rip)) return true;
  const Vma* const stack = find_vma(vmas, registers.rsp);
  if (stack == nullptr) return false;
  const std::uint64_t top = registers.rsp / sizeof(std::uint64_t) * sizeof(std::uint64_t);
  std::vector<std::uint64_t> words(std::min(stack->end - top, most) / sizeof(std::uint64_t));
  const std::size_t got = read_memory(target.pid(), top, std::as_writable_bytes(std::span(words)));
  words.resize(got / sizeof(std::uint64_t));
  return std::any_of(words.begin(), words.end(), [&](std::uint64_t word) { return points_into(room, word); });
}

}  // namespace

std::vector<std::uint8_t> call_room_code(std::uint64_t address, const std::string& nonce,
                                         const user_regs_struct& registers, std::uint64_t signal_mask) {
  CodeBuffer code(address);
  std::array<std::uint8_t, nonce_size> mark{};
  std::copy_n(nonce.begin(), std::min(nonce.size(), nonce_size), mark.begin());
  code.append(mark);
  code.append(system_call);

  // The numbers of registers in instructions (Intel SDM, volume 2, table 3-1).
  enum : unsigned { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15 };
  append_small_load(code, rax, SYS_rt_sigprocmask);
  append_small_load(code, rdi, SIG_SETMASK);
  code.append(std::array<std::uint8_t, 7>{0x48, 0x8D, 0x35});  // lea mask(%rip),%rsi
  const std::size_t mask_from = code.bytes().size();
  append_small_load(code, rdx, 0);
  append_small_load(code, r10, sizeof signal_mask);
  code.append(system_call);
  append_load(code, rax, registers.rax);
  append_load(code, rcx, registers.rcx);
  append_load(code, rdx, registers.rdx);
  append_load(code, rbx, registers.rbx);
  append_load(code, rbp, registers.rbp);
  append_load(code, rsi, registers.rsi);
  append_load(code, rdi, registers.rdi);
  append_load(code, r8, registers.r8);
  append_load(code, r9, registers.r9);
  append_load(code, r10, registers.r10);
  append_load(code, r11, registers.r11);
  append_load(code, r12, registers.r12);
  append_load(code, r13, registers.r13);
  append_load(code, r14, registers.r14);
  append_load(code, r15, registers.r15);
  code.append(std::array<std::uint8_t, 6>{0xFF, 0x25});  // jmp *(%rip), to the address that follows
  const std::size_t target_at = code.bytes().size();
  code.append(std::array<std::uint8_t, 2 * sizeof(std::uint64_t)>{});
  const std::size_t mask_at = target_at + sizeof(std::uint64_t);
  code.write64(target_at, registers.rip);
  code.write64(mask_at, signal_mask);
  code.write32(mask_from - sizeof(std::uint32_t), static_cast<std::uint32_t>(mask_at - mask_from));
  std::vector<std::uint8_t> bytes = code.bytes();
  bytes.resize(call_room_size);
  return bytes;
}

std::uint64_t call_entry(const CallRoom& room) {
  return room.address + nonce_size;
}

std::uint64_t way_back(const CallRoom& room) {
  return call_entry(room) + system_call.size();
}

std::optional<CallRoom> find_padding(pid_t pid, const std::vector<Vma>& vmas) {
  for (const bool kernel : {false, true})
    for (const Vma& vma : vmas) {
      if (vma.offset != 0 || !vma.readable || !(kernel ? vma.name == "[vdso]" : vma.file_backed())) continue;
      if (auto found = padding_of(pid, vmas, vma)) return found;
    }
  return std::nullopt;
}

std::optional<CallRoom> own_room(pid_t pid, std::uint64_t own_rooms) {
  const std::vector<std::uint8_t> unused(call_room_size, 0);
  for (std::size_t i = 0; own_rooms != 0 && i < own_call_rooms; ++i) {
    const std::uint64_t address = own_rooms + i * call_room_size;
    if (read_bytes(pid, address, call_room_size) == unused) return CallRoom{address, unused};
  }
  return std::nullopt;
}

bool clear_room(const Target& target, Standstill& stillness, const CallRoom& room, const std::string& nonce) {
  const auto now = read_bytes(target.pid(), room.address, call_room_size);
  if (nonce.size() != nonce_size || now.size() != call_room_size ||
      !std::equal(nonce.begin(), nonce.end(), now.begin()))
    return true;
  const auto maps = read_maps(target.pid());
  if (!maps) return false;
  for (const pid_t tid : stillness.threads())
    if (thread_may_return(target, maps->vmas, tid, room)) return false;
  return stillness.write(room.address, room.original);
}

}  // namespace whomap
