// SPDX-License-Identifier: Apache-2.0
// Any bytes are code to the scanner: it must end, stay inside them, and report only real instructions.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/plan/code_sites.h"
#include "core/plan/number_flow.h"
#include "core/plan/site_builder.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whomap;
  if (size < 3 || size > 65536) return 0;
  const InstructionSet& set = (data[0] & 1U) != 0 ? aarch64 : x86_64;
  const bool entry_known = (data[0] & 2U) != 0;
  // The first bytes also say where the code lies: at the very start and end of the address space too.
  const std::uint64_t address = (data[0] & 4U) != 0   ? 0
                                : (data[0] & 8U) != 0 ? ~std::uint64_t{0} - 65536
                                                      : 0x400000 + data[1];
  const std::vector<std::uint8_t> bytes(data + 2, data + size);
  const AddressRange range{address, address + bytes.size()};

  ModuleCode module(CodeView::of_bytes(address, bytes), nullptr, set, 0, "fuzz", "");
  const std::vector<std::int64_t> watched{9, 11, 12, 25};
  std::uint64_t last = 0;
  bool first = true;
  for (const CodeSite& site : find_code_sites(module).sites) {
    require(range.contains(site.address) && site.next > site.address && site.next <= range.end);
    require(first || site.address > last);
    const std::uint8_t* const at = bytes.data() + (site.address - address);
    if (&set == &x86_64)
      require(at[0] == 0x0F && at[1] == 0x05 && site.next == site.address + 2);
    else
      require(at[0] == 0x01 && at[3] == 0xD4);
    last = site.address;
    first = false;
    if (const auto planned = site_of(module, site, watched)) require(!planned->numbers.empty());
  }

  // As one function: every instruction lies in it, and the flow knows a state for each.
  const FunctionCode code = decode_function(module.view(), set, range, entry_known);
  const NumberFlow flow(code, set);
  std::uint64_t end = range.start;
  for (const Instruction& each : code.instructions) {
    require(each.length != 0 && each.address >= end && each.next() <= range.end);
    end = each.next();
    for (const Value& value : flow.before(each.address).registers) require(value.kind() != Value::Kind::none);
  }
  return 0;
}
