// SPDX-License-Identifier: Apache-2.0
#include "cli/throw_away.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "cli/command.h"
#include "core/base/spawn.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

constexpr char ready = 'r';
constexpr char go = 'g';

/// Lengths differ, so that a capture can be told from every other.
std::vector<PractisedCall> map_and_unmap(std::size_t page) {
  constexpr std::size_t rounds = 8;
  constexpr int protection = PROT_READ;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  std::vector<PractisedCall> made;
  made.reserve(ThrowAway::most_calls);
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t first = (2 * round + 1) * page;
    void* const by_libc = ::mmap(nullptr, first, protection, flags, -1, 0);
    made.push_back({SYS_mmap, first, reinterpret_cast<std::uint64_t>(by_libc)});
    const std::size_t second = first + page;
    const long by_number = ::syscall(SYS_mmap, nullptr, second, protection, flags, -1, 0L);
    made.push_back({SYS_mmap, second, static_cast<std::uint64_t>(by_number)});
    made.push_back({SYS_munmap, first, static_cast<std::uint64_t>(::munmap(by_libc, first))});
    made.push_back(
        {SYS_munmap, second, static_cast<std::uint64_t>(::syscall(SYS_munmap, by_number, second))});
  }
  return made;
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("throw-away", "--channel-fd FD", "the process on which a GDB is proven");
  int channel = -1;
  line.options().add_options()("channel-fd", po::value(&channel)->required(), "socket to the starter");
  if (const auto stop = line.parse(arguments)) return *stop;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  (void)map_and_unmap(page);  // whatever is mapped at first use is mapped now
  char order = ready;
  if (::send(channel, &order, 1, MSG_NOSIGNAL) != 1) return ExitStatus::done;
  while (::recv(channel, &order, 1, 0) == 1) {
    const auto made = map_and_unmap(page);
    if (::send(channel, made.data(), made.size() * sizeof made.front(), MSG_NOSIGNAL) < 0) break;
  }
  return ExitStatus::done;
}

}  // namespace

Result<ThrowAway> ThrowAway::start() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail(ErrorCode::kernel_feature, "socketpair failed", {}, errno);
  UniqueFd own(ends[0]);
  UniqueFd other(ends[1]);
  const auto output = memory_file("whomap-throw-away");
  if (!output) return tl::make_unexpected(output.error());
  const auto pid = spawn({{"/proc/self/exe", "throw-away", "--channel-fd", std::to_string(other.get())},
                          output->get(),
                          {other.get()},
                          {},
                          ErrorCode::kernel_feature,
                          {}});
  if (!pid) return tl::make_unexpected(pid.error());
  other.reset();
  ThrowAway child(std::move(own), *pid);
  char said = 0;
  if (::recv(child.fd(), &said, 1, 0) != 1 || said != ready)
    return fail(ErrorCode::kernel_feature,
                fmt::format("the throw-away process does not start: {}", content_of(output->get())));
  return child;
}

ThrowAway::ThrowAway(ThrowAway&& other) noexcept
    : channel_(std::move(other.channel_)), pid_(std::exchange(other.pid_, -1)) {}

ThrowAway::~ThrowAway() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void ThrowAway::make_calls() const {
  (void)::send(channel_.get(), &go, 1, MSG_NOSIGNAL);
}

std::optional<std::vector<PractisedCall>> ThrowAway::calls_made() const {
  std::vector<PractisedCall> calls(most_calls);
  ssize_t got = 0;
  while ((got = ::recv(channel_.get(), calls.data(), calls.size() * sizeof calls.front(), 0)) < 0 &&
         errno == EINTR) {
  }
  if (got <= 0) return std::nullopt;
  calls.resize(static_cast<std::size_t>(got) / sizeof calls.front());
  return calls;
}

const CommandInfo throw_away_command{"throw-away", "the process on which a GDB is proven", run, true};

}  // namespace whomap::cli
