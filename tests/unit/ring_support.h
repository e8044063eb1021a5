// SPDX-License-Identifier: Apache-2.0
// A ring, its control area and stubs in this process, as a target would have them.
#pragma once

#include <gtest/gtest.h>

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/base/unique_fd.h"
#include "core/capture/ring.h"
#include "core/capture/ring_reader.h"
#include "core/capture/stack_ranges.h"
#include "core/stub/ring_hand_over.h"

namespace whomap::test {

/// What record_call_x86_64.S loads and stores.
struct RecordedCall {
  std::uint64_t rax = 0, rbx = 0, unused_rcx = 0, rdx = 0, rsi = 0, rdi = 0, rbp = 0, r8 = 0, r9 = 0, r10 = 0,
                unused_r11 = 0, r12 = 0, r13 = 0, r14 = 0, r15 = 0;
  std::uint64_t flags = 0x202;
  std::uint64_t code = 0;
  std::uint64_t own_stack = 0;
  std::uint64_t red_zone_changes = 0;
  std::uint64_t stack = 0;  ///< to run on; 0: the caller's
};
static_assert(offsetof(RecordedCall, flags) == 120 && offsetof(RecordedCall, code) == 128 &&
              offsetof(RecordedCall, red_zone_changes) == 144 && offsetof(RecordedCall, stack) == 152);

extern "C" void whomap_test_call(RecordedCall*);
extern "C" void whomap_test_return_on_rbx();

inline constexpr std::uint32_t first_site = 7;
inline constexpr std::array<std::int64_t, 7> stub_numbers{SYS_mmap,     SYS_munmap,  SYS_mremap, SYS_brk,
                                                          SYS_mprotect, SYS_getppid, SYS_read};
inline constexpr std::uint64_t site_return_address = 0x401000;

inline std::uint64_t thread_base() {
  std::uint64_t base = 0;
  // On x86-64 the thread's descriptor begins with its own address (Drepper, ELF Handling For TLS, 3.4.6).
  asm("mov %%fs:0, %0" : "=r"(base));
  return base;
}

class RingInProcess {
 public:
  explicit RingInProcess(RingOptions ring_options = {.slot_count = 1024,
                                                     .stack_bytes = 4096,
                                                     .range_capacity = 8192},
                         RecordOptions record_options = {.tsc_usable = true, .thread_base_usable = true}) {
    shape = RingShape::of(ring_options).value();
    const UniqueFd file(::memfd_create("ring", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(shape.bytes)), 0);
    target_ring_ = map(shape.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
    reader_ring_ = map(shape.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
    EXPECT_NE(target_ring_, reader_ring_);
    format_ring(ring(), shape);
    control_ = map(control_area_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    EXPECT_EQ(::madvise(control_, WHOMAP_CONTROL_BYTES, MADV_WIPEONFORK), 0);
    settings() = record_settings(reinterpret_cast<std::uint64_t>(target_ring_), shape, record_options);
    code_ = map(code_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    CodeBuffer code(reinterpret_cast<std::uint64_t>(code_));
    RingHandOver hand_over(reinterpret_cast<std::uint64_t>(control_));
    std::uint32_t site = first_site;
    constexpr std::uint8_t ret[] = {0xC3};
    for (const std::int64_t number : stub_numbers) {
      code.append(ret);  // so that the next one starts at an odd address
      entries_[number] = code.here();
      EXPECT_TRUE(hand_over.emit(code, site++, number));
      code.append(ret);
    }
    gone_stack_entry_ = code.here();
    EXPECT_TRUE(hand_over.emit(code, site, SYS_munmap));
    const auto back = reinterpret_cast<std::uint64_t>(&whomap_test_return_on_rbx);
    constexpr std::uint8_t load_rcx[] = {0x48, 0xB9}, jump_rcx[] = {0xFF, 0xE1};
    code.append(load_rcx);
    std::uint8_t address[sizeof back];
    std::memcpy(address, &back, sizeof back);
    code.append(address);
    code.append(jump_rcx);
    EXPECT_LE(code.bytes().size(), code_bytes);
    std::memcpy(code_, code.bytes().data(), code.bytes().size());
    code_end_ = code.here();
    EXPECT_EQ(::mprotect(code_, code_bytes, PROT_READ | PROT_EXEC), 0);
    publish_stacks();
  }
  ~RingInProcess() {
    arm(ArmedState::off);
    ::munmap(target_ring_, shape.bytes);
    ::munmap(reader_ring_, shape.bytes);
    ::munmap(control_, control_area_bytes);
    ::munmap(code_, code_bytes);
  }
  RingInProcess(const RingInProcess&) = delete;
  RingInProcess& operator=(const RingInProcess&) = delete;

  ControlPage& control() const { return *static_cast<ControlPage*>(control_); }
  RecordSettings& settings() const {
    return *reinterpret_cast<RecordSettings*>(static_cast<std::byte*>(control_) + WHOMAP_SETTINGS);
  }
  std::span<std::byte> ring() const { return {static_cast<std::byte*>(reader_ring_), shape.bytes}; }
  RingHead& head() const { return *static_cast<RingHead*>(reader_ring_); }
  void arm(ArmedState armed) const { std::atomic_ref(control().armed).store(static_cast<std::uint32_t>(armed)); }
  std::uint64_t inside() const { return std::atomic_ref(control().inside).load(); }
  bool in_code(std::uint64_t pc) const {
    return pc >= reinterpret_cast<std::uint64_t>(code_) && pc < code_end_;
  }
  std::uint64_t entry(std::int64_t number) const { return entries_.at(number); }
  std::uint64_t gone_stack_entry() const { return gone_stack_entry_; }
  std::uint32_t site(std::int64_t number) const {
    std::uint32_t site = first_site;
    for (const std::int64_t each : stub_numbers) {
      if (each == number) return site;
      ++site;
    }
    return site;
  }

  void publish_stacks() {
    main_base_ = thread_base();
    StackTableWriter writer(ring(), shape);
    EXPECT_EQ(writer.publish(stack_ranges(read_maps(::getpid())->vmas, main_base_)), 0U);
  }

  RingReader reader(RingReader::Options options = {}) const {
    options.tsc_usable = settings().tsc_usable != 0;
    if (!options.return_address_of)
      options.return_address_of = [](std::uint32_t) { return site_return_address; };
    return {ring(), shape, std::move(options)};
  }

  /// Runs the call through its stub.
  std::uint64_t call(std::int64_t number, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0,
                     std::uint64_t d = 0, std::uint64_t e = 0, std::uint64_t f = 0) const {
    RecordedCall call;
    call.rax = static_cast<std::uint64_t>(number);
    call.rdi = a;
    call.rsi = b;
    call.rdx = c;
    call.r10 = d;
    call.r8 = e;
    call.r9 = f;
    call.code = entry(number);
    whomap_test_call(&call);
    return call.rax;
  }
  std::uint64_t map_memory(std::uint64_t length, std::uint64_t tag = 0) const {
    return call(SYS_mmap, 0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                static_cast<std::uint64_t>(-1), tag << 12);
  }
  std::uint64_t unmap_memory(std::uint64_t address, std::uint64_t length, std::uint64_t tag = 0) const {
    return call(SYS_munmap, address, length, tag);
  }

  RingShape shape;

 private:
  static constexpr std::size_t code_bytes = 8 * 4096;
  static void* map(std::size_t size, int protection, int flags, int fd) {
    void* at = ::mmap(nullptr, size, protection, flags, fd, 0);
    EXPECT_NE(at, MAP_FAILED);
    return at;
  }

  void* target_ring_ = nullptr;
  void* reader_ring_ = nullptr;
  void* control_ = nullptr;
  void* code_ = nullptr;
  std::uint64_t code_end_ = 0;
  std::uint64_t main_base_ = 0;
  std::uint64_t gone_stack_entry_ = 0;
  std::map<std::int64_t, std::uint64_t> entries_;
};

/// Everything in the ring now.
inline std::vector<RingCapture> all(RingReader& reader, std::uint64_t now_ns = monotonic_ns()) {
  std::vector<RingCapture> captures;
  reader.poll(now_ns, [&](RingCapture& capture) { captures.push_back(capture); });
  return captures;
}

}  // namespace whomap::test
