// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/plan_table.h"
#include "core/elf/module_map.h"
#include "core/plan/make_plan.h"
#include "core/plan/observe.h"
#include "core/process/target.h"
#include "core/process/vma.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

Result<Plan> plan_of_process(pid_t pid, const PlanOptions& options, std::optional<double> observed_seconds) {
  auto target = Target::open(pid);
  if (!target) return tl::make_unexpected(target.error());
  auto maps = read_maps(pid);
  if (!maps) return tl::make_unexpected(maps.error());
  ModuleMap modules;
  modules.update(*target, maps->vmas);
  auto plan = make_plan(*target, modules, options);
  if (plan && !maps->unparsed.empty())
    plan->notes.push_back(
        fmt::format("{} lines of /proc/{}/maps were not understood", maps->unparsed.size(), pid));
  if (plan && observed_seconds)
    if (auto observed = observe(*plan, *target, *observed_seconds); !observed)
      return tl::make_unexpected(observed.error());
  return plan;
}

Result<Plan> plan_of_file(const std::string& path, const PlanOptions& options) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return fail(ErrorCode::input_unreadable, fmt::format("cannot open {}", path), {}, errno);
  auto image = Image::from_file(std::move(fd), path);
  if (!image) return tl::make_unexpected(image.error());
  return make_plan(*image, options);
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("plan", "-p PID [OPTIONS] | --elf FILE [OPTIONS]",
                   "which instructions map memory, and how each would be watched");
  line.options().add_options()("pid,p", po::value<std::string>()->value_name("PID"),
                               "the process to look at; it is not stopped")(
      "elf", po::value<std::string>()->value_name("FILE"), "an x86-64 or AArch64 file on disk instead")(
      "syscalls", po::value<std::string>()->value_name("LIST"),
      "calls to plan for (default: mmap,munmap,mremap,brk)")(
      "observe", po::value<std::string>()->value_name("SEC"),
      "count for SEC seconds how often each variable site is hit now; the process is not stopped")(
      "module", po::value<std::string>()->value_name("REGEX"), "only modules whose path matches")(
      "format", po::value<std::string>()->value_name("FORMAT")->default_value("table"), "table or json")(
      "output,o", po::value<std::string>()->value_name("FILE")->default_value("-"),
      "write to FILE, - is standard output");
  if (auto stop = line.parse(arguments)) return *stop;
  if (line.has("pid") == line.has("elf")) return report_usage("plan", "give either -p PID or --elf FILE");
  std::optional<double> observed_seconds;
  if (line.has("observe")) {
    if (line.has("elf")) return report_usage("plan", "--observe needs a process, and --elf names a file");
    const auto seconds = parse_seconds(line.get<std::string>("observe"));
    if (!seconds) return report_usage("plan", seconds.error());
    observed_seconds = *seconds;
  }
  const std::string& format = line.get<std::string>("format");
  if (format != "table" && format != "json")
    return report_usage("plan", fmt::format("--format is '{}', and must be table or json", format));

  if (line.has("module") && line.has("elf"))
    return report_usage("plan", "--module chooses among the modules of a process, and --elf names one file");
  PlanOptions options;
  if (line.has("module")) options.module_regex = line.get<std::string>("module");
  if (line.has("syscalls")) {
    auto numbers = parse_syscalls(line.get<std::string>("syscalls"));
    if (!numbers) return report_error(numbers.error());
    options.watched = std::move(*numbers);
  }
  if (auto sensible = check(options); !sensible) return report_usage("plan", sensible.error());
  Result<Plan> plan = fail(ErrorCode::usage, "");
  if (line.has("pid")) {
    const auto pid = parse_pid(line.get<std::string>("pid"));
    if (!pid) return report_usage("plan", pid.error());
    plan = plan_of_process(*pid, options, observed_seconds);
  } else {
    plan = plan_of_file(line.get<std::string>("elf"), options);
  }
  if (!plan) return report_error(plan.error());

  const std::string& output = line.get<std::string>("output");
  const std::string text = format == "json" ? to_json(*plan).dump(2) + "\n" : plan_table(*plan);
  if (auto wrote = write_result(output, line.common().force, text); !wrote)
    return report_error(wrote.error());
  return plan->sites.empty() ? ExitStatus::negative : ExitStatus::done;
}

}  // namespace

const CommandInfo plan_command{"plan", "which instructions of a process map memory", run};

}  // namespace whomap::cli
