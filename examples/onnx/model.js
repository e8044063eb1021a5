// SPDX-License-Identifier: Apache-2.0
// A model of three nodes as the bytes of a .onnx file (protocol buffers, onnx/onnx.proto): for x of any length,
// y = max((x + x) * x). The two vectors in between are what ONNX Runtime takes from its arena; y is one number.
'use strict';

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}

const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, content) => {
  const body = Buffer.isBuffer(content) ? content : Buffer.from(content);
  return Buffer.concat([varint(field * 8 + 2), varint(body.length), body]);
};
const message = (field, ...parts) => bytes(field, Buffer.concat(parts));

function node(operation, inputs, output, ...attributes) {
  return message(1, ...inputs.map((name) => bytes(1, name)), bytes(2, output), bytes(4, operation), ...attributes);
}

const float = number(1, 1);
const keepNoDimensions = message(5, bytes(1, 'keepdims'), number(3, 0), number(20, 2));

/** ValueInfoProto: a tensor of floats with these dimensions, numbers or names. */
function tensor(field, name, dimensions) {
  const shape = message(2, ...dimensions.map((each) =>
    message(1, typeof each === 'number' ? number(1, each) : bytes(2, each))));
  return message(field, bytes(1, name), message(2, message(1, float, shape)));
}

module.exports = Buffer.concat([
  number(1, 8),  // ir_version
  message(7,
    node('Add', ['x', 'x'], 'sum'),
    node('Mul', ['sum', 'x'], 'product'),
    node('ReduceMax', ['product'], 'y', keepNoDimensions),
    bytes(2, 'growing'),
    tensor(11, 'x', ['n']),
    tensor(12, 'y', [])),
  message(8, bytes(1, ''), number(2, 13)),  // opset 13
]);
