// SPDX-License-Identifier: Apache-2.0
// Before a GDB is let at anybody's process, it has to do the same with one of ours: stop at the int3 that lie
// in stubs, go on behind them, and let go.
#pragma once

#include <cstddef>
#include <string>

#include "core/base/error.h"

namespace whomap::cli {

struct GdbProof {
  std::size_t calls = 0;  ///< captured in their stubs, each with its own number, length and result
};

/// Carries it out with the GDB at `path`, on a throw-away process that ends with it. Errors: gdb_missing,
/// gdb_without_python, gdb_failed when GDB does not even get as far as watching; kernel_feature when it
/// watches and what it captures, or what becomes of the process, is wrong, or when no stubs can be put in.
Result<GdbProof> prove_gdb(const std::string& path);

}  // namespace whomap::cli
