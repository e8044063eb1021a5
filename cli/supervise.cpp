// SPDX-License-Identifier: Apache-2.0
// whomap supervise: started by whomap trace; keeps the stubs in the target and takes them out again.
#include <fmt/format.h>
#include <unistd.h>

#include "cli/command.h"
#include "core/base/json_fields.h"
#include "core/base/spawn.h"
#include "core/capture/ring.h"
#include "core/stub/ring_engine.h"
#include "core/stub/supervisor.h"
#include "core/stub/trap_engine.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

Result<void> keep_stubs(const std::string& engine, int plan_fd, const UniqueFd& channel) {
  const auto json = parse_json(content_of(plan_fd));
  if (json.is_discarded()) return fail(ErrorCode::input_damaged, "the plan is not JSON");
  const auto plan = plan_from_json(json);
  if (!plan) return tl::make_unexpected(plan.error());
  const auto target = Target::open(plan->target.pid);
  if (!target) return tl::make_unexpected(target.error());
  if (target->identity().start_time != plan->target.start_time)
    return fail(ErrorCode::process_replaced,
                fmt::format("process {} is not the one the plan was made for", plan->target.pid));
  if (engine == "debugger") {
    stand_by(*target, channel);
    return {};
  }
  const auto shape = RingShape::of({});
  if (!shape) return tl::make_unexpected(shape.error());
  if (engine == "trap") {
    TrapEngine trap(shape->bytes, plan->page_size);
    supervise(*target, *plan, trap, channel);
  } else if (engine == "ring") {
    RingEngine ring(shape->bytes, plan->page_size);
    supervise(*target, *plan, ring, channel);
  } else {
    return fail(ErrorCode::usage, fmt::format("there is no engine '{}'", engine));
  }
  return {};
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("supervise", "--engine NAME ...", "keep stubs in a process until the starter is gone");
  std::string engine;
  int plan_fd = -1;
  int channel_fd = -1;
  line.options().add_options()("engine", po::value(&engine)->required(),
                               "trap, ring, or debugger (which puts them in itself)")(
      "plan-fd", po::value(&plan_fd)->required(), "descriptor of the plan")(
      "channel-fd", po::value(&channel_fd)->required(), "socket to the starter");
  if (const auto stop = line.parse(arguments)) return *stop;
  const UniqueFd channel(channel_fd);
  if (const auto kept = keep_stubs(engine, plan_fd, channel); !kept) report_failure(channel, kept.error());
  return ExitStatus::done;
}

}  // namespace

const CommandInfo supervise_command{"supervise", "keep stubs in a process", run, true};

}  // namespace whomap::cli
