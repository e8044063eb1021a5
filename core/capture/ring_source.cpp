// SPDX-License-Identifier: Apache-2.0
#include "core/capture/ring_source.h"

#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/process/memory.h"

namespace whomap {
namespace {

constexpr std::uint64_t ns_per_ms = 1'000'000;

/// AT_HWCAP2 of the target has HWCAP2_FSGSBASE, bit 1: rdfsbase works in user mode
/// (arch/x86/include/uapi/asm/hwcap2.h, Linux 5.9).
bool may_read_thread_base(pid_t pid) {
  const auto text = read_file(fmt::format("/proc/{}/auxv", pid));
  if (!text) return false;
  constexpr std::uint64_t fsgsbase = 2;
  for (std::size_t at = 0; at + sizeof(Elf64_auxv_t) <= text->size(); at += sizeof(Elf64_auxv_t)) {
    Elf64_auxv_t entry{};
    std::memcpy(&entry, text->data() + at, sizeof entry);
    if (entry.a_type == AT_HWCAP2) return (entry.a_un.a_val & fsgsbase) != 0;
  }
  return false;
}

template <class T>
std::span<const std::uint8_t> bytes_of(const T& value) {
  return {reinterpret_cast<const std::uint8_t*>(&value), sizeof value};
}

void count(std::vector<std::string>& notes, std::uint64_t number, const char* what) {
  if (number != 0) notes.push_back(fmt::format("{} {}", number, what));
}

}  // namespace

RingSource::RingSource(const Target& target, const Plan& plan, const RingShape& shape,
                       const RingSourceOptions& options)
    : target_(target),
      plan_(plan),
      shape_(shape),
      options_(options),
      tsc_problem_(options.tsc_forbidden
                       ? "the target has forbidden itself to read the time stamp counter (PR_SET_TSC)"
                       : why_tsc_is_unusable()),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      memory_file_(target.pid()),
      threads_(target.pid(), options.thread_bases) {}

Result<std::unique_ptr<RingSource>> RingSource::open(const Target& target, const Plan& plan, UniqueFd ring,
                                                     const RingSourceOptions& options) {
  const auto shape = RingShape::of({});
  if (!shape) return tl::make_unexpected(shape.error());
  std::unique_ptr<RingSource> source(new RingSource(target, plan, *shape, options));
  // The file means the program that has the stubs, also when another one is exec'd.
  if (auto same = target.check(); !same) return tl::make_unexpected(same.error());
  if (!source->timer_.valid()) return fail(ErrorCode::kernel_feature, "timerfd_create failed", {}, errno);
  struct stat file {};
  if (::fstat(ring.get(), &file) != 0 || static_cast<std::uint64_t>(file.st_size) < shape->bytes)
    return fail(ErrorCode::kernel_feature, "the ring is not as large as it should be", {}, errno);
  // All of it at once: a page that could not be had later would be a SIGBUS in the target.
  if (const int why = ::posix_fallocate(ring.get(), 0, static_cast<off_t>(shape->bytes)); why != 0)
    return fail(ErrorCode::kernel_feature,
                fmt::format("{} MiB of memory for the ring cannot be had", shape->bytes >> 20),
                "stop something else first, or use --engine gdb", why);
  void* const memory = ::mmap(nullptr, shape->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring.get(), 0);
  if (memory == MAP_FAILED) return fail(ErrorCode::kernel_feature, "the ring cannot be mapped", {}, errno);
  source->memory_ = memory;
  const std::span bytes(static_cast<std::byte*>(memory), shape->bytes);
  format_ring(bytes, *shape);
  RingReader::Options reading;
  reading.calls_per_second = options.calls_per_second;
  reading.tsc_usable = source->tsc_problem_.empty();
  reading.thread_of = [self = source.get()](std::uint64_t base, std::uint64_t) {
    return self->threads_.find(base);
  };
  reading.return_address_of = [self = source.get()](std::uint32_t site) {
    return self->return_address_of(site);
  };
  source->reader_.emplace(bytes, *shape, reading);
  source->stack_writer_.emplace(bytes, *shape);
  source->refresh_stacks();
  source->write_settings();
  if (!source->wrote_)
    return fail(ErrorCode::not_permitted,
                fmt::format("the memory of process {} cannot be written", target.pid()));
  return source;
}

RingSource::~RingSource() {
  if (said_armed_ && !ending_) arm(ArmedState::off);
  if (memory_ != nullptr) ::munmap(memory_, shape_.bytes);
}

std::uint64_t RingSource::return_address_of(std::uint32_t site) const {
  return site < plan_.sites.size() ? plan_.sites[site].return_address : 0;
}

void RingSource::write_settings() {
  RecordOptions record;
  record.tsc_usable = tsc_problem_.empty();
  record.thread_base_usable = may_read_thread_base(target_.pid());
  record.rate_limited = options_.calls_per_second != 0;
  record.minimum_length = options_.minimum_length;
  record.sample_interval = options_.sample_interval;
  const RecordSettings settings = record_settings(options_.ring, shape_, record);
  wrote_ = memory_file_.write(options_.control + WHOMAP_SETTINGS, bytes_of(settings));
}

void RingSource::arm(ArmedState armed) {
  const auto value = static_cast<std::uint32_t>(armed);
  wrote_ = memory_file_.write(options_.control + WHOMAP_CONTROL_ARMED, bytes_of(value));
}

void RingSource::refresh_stacks() {
  const auto begin = monotonic_ns();
  if (const auto maps = read_maps(target_.pid())) {
    std::uint64_t main_base = 0;
    for (const auto& [tid, base] : options_.thread_bases)
      if (tid == target_.pid()) main_base = base;
    unlisted_ranges_ = stack_writer_->publish(stack_ranges(maps->vmas, main_base));
  }
  // Reading maps holds the target's mmap lock for moments: at most 1 % of the time goes into it.
  constexpr std::uint64_t cost_share = 100;
  const std::uint64_t now = monotonic_ns();
  next_refresh_ns_ = now + std::max<std::uint64_t>(50 * ns_per_ms, (now - begin) * cost_share);
  unknown_stacks_ = 0;
}

void RingSource::say_ready() {
  arm(ArmedState::recording);
  sleep_until_next();
}

void RingSource::sleep_until_next() {
  itimerspec when{};
  when.it_value.tv_nsec =
      static_cast<long>(std::clamp<std::uint64_t>(reader_->pause_ns(), 100'000, 999'999'999));
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

void RingSource::ask_for_end() {
  if (ending_) return;
  ending_ = true;
  arm(ArmedState::finishing);
  sleep_until_next();
}

ControlPage RingSource::read_control() const {
  std::array<std::uint8_t, sizeof(ControlPage)> bytes{};
  ControlPage control;
  if (memory_file_.read(options_.control, bytes) == bytes.size())
    std::memcpy(static_cast<void*>(&control), bytes.data(), bytes.size());
  return control;
}

std::size_t RingSource::poll(const Consumer& consumer, bool last) {
  const RingReader::Consumer each = [&](RingCapture& got) {
    if (got.stack_end == StackEnd::page) ++unknown_stacks_;
    // What a record costs the thread, as measured (core/README.md, "The ring").
    constexpr double ns_per_record = 110, ns_per_byte = 0.14;
    busy_ns_ += ns_per_record + ns_per_byte * static_cast<double>(got.capture.stack.bytes.size());
    TracerMessage message(std::move(got.capture));
    consumer(message);
  };
  const std::uint64_t now = monotonic_ns();
  return last ? reader_->finish(now, each) : reader_->poll(now, each);
}

Result<bool> RingSource::deliver(const Consumer& consumer) {
  std::uint64_t expirations = 0;
  (void)!::read(timer_.get(), &expirations, sizeof expirations);
  if (said_finished_) return false;
  if (!said_armed_) {
    if (!wrote_) return false;
    said_armed_ = true;
    TracerMessage message(Armed{});
    consumer(message);
  }
  poll(consumer, false);
  if (!ending_) {
    const std::uint64_t now = monotonic_ns();
    if (unknown_stacks_ != 0 && now >= next_refresh_ns_) refresh_stacks();
    // Not for want of a descriptor to look with (kernel_feature).
    if (const auto same = target_.check(); !same && same.error().code != ErrorCode::kernel_feature)
      ask_for_end();
  }
  if (ending_) {
    constexpr int patience_ms = 50;
    for (int waited = 0; waited < patience_ms && read_control().inside != 0; ++waited) {
      ::poll(nullptr, 0, 1);
      poll(consumer, false);
    }
    arm(ArmedState::off);
    for (int waited = 0; waited < patience_ms && read_control().inside != 0; ++waited) ::poll(nullptr, 0, 1);
    poll(consumer, true);
    said_finished_ = true;
    TracerMessage message(finished());
    consumer(message);
    return true;
  }
  sleep_until_next();
  return true;
}

Finished RingSource::finished() const {
  const RingCounts counts = reader_->counts();
  const ControlPage control = read_control();
  Finished result;
  result.counts.captured = counts.captured;
  result.counts.busy_ns = static_cast<std::uint64_t>(busy_ns_);
  result.counts.lost = counts.lost + counts.damaged + counts.dropped + counts.pending + control.no_place;
  result.left_out = {control.too_short, control.too_short_bytes, control.not_sampled,
                     control.not_sampled_bytes, counts.over_rate};
  result.counts.hits = counts.captured + result.counts.lost + result.left_out.calls();
  std::vector<std::string>& notes = result.notes;
  count(notes, counts.dropped, "calls came faster than they could be read: the ring was full");
  count(notes, counts.lost, "calls were begun to be recorded and not finished in time");
  count(notes, counts.damaged, "records did not make sense: the target has written over the ring");
  count(notes, control.no_place, "calls were not recorded: too many were under way at once");
  count(notes, control.abandoned, "calls began and never came back to their stub");
  if (!tsc_problem_.empty())
    notes.push_back(fmt::format("the calls have no times, only an order: {}", tsc_problem_));
  if (!threads_.knows_place())
    notes.push_back(
        "the threads that made the calls are not all known: where the C library keeps their ids was not "
        "found");
  if (unlisted_ranges_ != 0)
    notes.push_back(fmt::format(
        "{} stacks did not fit into the table and were copied to the end of a page only", unlisted_ranges_));
  return result;
}

}  // namespace whomap
