// SPDX-License-Identifier: Apache-2.0
// The code of stubs: what lies in one code area in the target.
//
//     header      64 bytes: a mark, the nonce; read by repair and by the next installation
//     prologue    of the engine (a signal handler), may be empty
//     stub        per site: the instructions that moved, the test of the number, per number the call and the
//                 hand-over, a jump back behind the site's `syscall`
//
// All code is position-dependent, built for its run-time address; only direct jumps are used, so that
// indirect branch tracking and shadow stacks see nothing.
#pragma once

#include "core/plan/plan.h"
#include "core/stub/code_buffer.h"
#include "core/stub/hand_over.h"
#include "core/stub/stub_state.h"

namespace whomap {

/// Appends the stub of `site` and returns the jump to it that takes the place of the site's instruction.
/// Errors: unsupported_target naming what cannot be done; what was appended for it is harmless.
Result<PlacedJump> append_stub(CodeBuffer& code, const Site& site, HandOver& hand_over);

}  // namespace whomap
