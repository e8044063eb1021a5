// SPDX-License-Identifier: Apache-2.0
// Blocks below interpreted and compiled functions of a JIT.
const fs = require('fs');
function work(n) { let sum = 0; for (let i = 0; i < 2000; i++) sum += i * n; return sum; }
for (let i = 0; i < 3000; i++) work(i);
function block() { fs.writeSync(1, 'blocked\n'); fs.readSync(0, Buffer.alloc(1)); }
function nested(n) { if (n > 0) return nested(n - 1) + 1; block(); return 0; }
nested(6);
