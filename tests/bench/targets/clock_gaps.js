// SPDX-License-Identifier: Apache-2.0
// clock_gaps.c for node: "END_NS GAP_NS" for each gap above 0.3 ms. process.hrtime is CLOCK_MONOTONIC.
const fs = require('fs');
const nothing = new Int32Array(new SharedArrayBuffer(4));
fs.writeSync(1, 'ready\n');
let last = process.hrtime.bigint();
for (;;) {
  Atomics.wait(nothing, 0, 0, 0.05);
  const here = process.hrtime.bigint();
  if (here - last > 300000n) fs.writeSync(1, `${here} ${here - last}\n`);
  last = process.hrtime.bigint();
}
