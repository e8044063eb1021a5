// SPDX-License-Identifier: Apache-2.0
// The service of examples/arena with the real ONNX Runtime (npm: onnxruntime-node), whose CPU arena grows to what the
// largest request needs. Each request is STEP KiB (256) longer than the one before.
//   node server.js MODE FIFO [STEP]   as examples/arena/arena.c: a line to FIFO is a request, "done" on FIFO.done the
//                                     answer; MODE is leak, placebo or fixed
'use strict';
const fs = require('fs');
const { execFileSync } = require('child_process');
const ort = require('onnxruntime-node');

const [mode, fifo, step = '256'] = process.argv.slice(2);
if (!['leak', 'placebo', 'fixed'].includes(mode) || !fifo || !(Number(step) > 0)) {
  console.error('usage: node server.js leak|placebo|fixed FIFO [STEP]');
  process.exit(2);
}

const bounded = { enableCpuMemArena: false };

/** The fix that logs and takes no effect: the caller's own options win over the bounded ones. */
function patch(runtime) {
  const create = runtime.InferenceSession.create;
  runtime.InferenceSession.create = (model, options) =>
    create.call(runtime.InferenceSession, model, { ...bounded, ...options });
  console.error('runtime patched: arena bounded');
}

async function main() {
  if (mode === 'placebo') patch(ort);
  // Memory patterns are for requests of one size; these differ.
  const options = { enableCpuMemArena: mode !== 'fixed', enableMemPattern: false, intraOpNumThreads: 1 };
  const session = await ort.InferenceSession.create(require('./model.js'), options);

  const floats = Number(step) * 256;
  const longest = new Float32Array(floats * 400).fill(1);  // once: JavaScript's own memory is to stand still
  let length = 0;
  async function serve() {
    length = Math.min(length + floats, longest.length);
    const x = new ort.Tensor('float32', longest.subarray(0, length), [length]);
    await session.run({ x });
    // With --expose-gc: or 16 seconds would see JavaScript's garbage grow and never be collected.
    if (global.gc && length % (10 * floats) === 0) global.gc();
  }

  for (const path of [fifo, `${fifo}.done`]) if (!fs.existsSync(path)) execFileSync('mkfifo', [path]);
  // With an end of our own at the other side neither FIFO ever ends.
  const requests = fs.createReadStream(null, { fd: fs.openSync(fifo, 'r+') });
  const answers = fs.openSync(`${fifo}.done`, 'r+');
  console.log('ready');
  for await (const chunk of requests)
    for (const byte of chunk)
      if (byte === 10) {
        await serve();
        fs.writeSync(answers, 'done\n');
      }
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
