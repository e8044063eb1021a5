// SPDX-License-Identifier: Apache-2.0
#include "core/match/runtime.h"

namespace whomap {
std::string qualified_name(std::string_view demangled) {
  std::string flat;
  int depth = 0;
  for (std::size_t i = 0; i < demangled.size(); ++i) {
    const char c = demangled[i];
    // "(anonymous namespace)" is part of the name; "operator<" and "operator()" hold brackets of their own.
    constexpr std::string_view anonymous = "(anonymous namespace)";
    if (depth == 0 && demangled.substr(i).starts_with(anonymous)) {
      flat += "(anonymous)";
      i += anonymous.size() - 1;
      continue;
    }
    if (depth == 0 && flat.ends_with("operator")) {
      flat += c;
      continue;
    }
    if (c == '(' && depth == 0) break;
    if (c == '<' || c == '(')
      ++depth;
    else if ((c == '>' || c == ')') && depth > 0)
      --depth;
    else if (depth == 0)
      flat += c;
  }
  if (const auto conversion = flat.find("operator "); conversion != std::string::npos) {
    const auto space = flat.rfind(' ', conversion == 0 ? 0 : conversion - 1);
    return space == std::string::npos || conversion == 0 ? flat : flat.substr(space + 1);
  }
  const auto space = flat.rfind(' ');
  return space == std::string::npos ? flat : flat.substr(space + 1);
}

bool is_standard_library(const Frame& frame) {
  if (!frame.function) return false;
  const std::string name = qualified_name(*frame.function);
  return name.starts_with("std::") || name.starts_with("__gnu_cxx::");
}

std::string_view runtime_name(Runtime runtime) {
  switch (runtime) {
    case Runtime::cpython: return "CPython";
    case Runtime::go: return "Go";
    case Runtime::jvm: return "the JVM";
    case Runtime::v8: return "V8";
  }
  return "";
}

std::string_view profiler_for(std::optional<Runtime> runtime) {
  if (!runtime) return "A heap profiler (heaptrack, or memray for Python) shows who holds the blocks";
  switch (*runtime) {
    case Runtime::cpython:
      return "Who holds the objects is seen in Python: memray attach PID (who allocates, native code "
             "included), or tracemalloc (the line that allocated what is live; python -X tracemalloc); "
             "py-spy dump -p PID shows the lines that run at one moment";
    case Runtime::go: return "Go's heap profile (runtime/pprof, net/http/pprof) shows who holds the objects";
    case Runtime::jvm:
      return "The JVM's own tools show who holds it: jcmd PID GC.class_histogram (and GC.heap_info) for the "
             "Java heap, jcmd PID "
             "VM.native_memory for what is outside of it (if started with -XX:NativeMemoryTracking=summary; "
             "direct ByteBuffers are its \"Other\", and -XX:MaxDirectMemorySize limits them)";
    case Runtime::v8:
      return "A heap snapshot of V8 (node --heapsnapshot-signal, or the inspector) shows who holds the "
             "objects; Buffers and ArrayBuffers lie outside its heap, process.memoryUsage() counts them "
             "(arrayBuffers, external), and the snapshot shows who holds them";
  }
  return "";
}

std::string_view runtime_lines(const Stack& stack) {
  for (const Frame& frame : stack.frames) {
    if (!frame.function) continue;
    const std::string_view name = *frame.function;
    if (name.starts_with("_PyEval_") || name.starts_with("PyEval_") || name.starts_with("_PyFunction_"))
      return "It is called from Python: py-spy dump -p PID shows the Python lines of one moment, memray "
             "attach PID those that go on allocating through malloc and mmap (tracemalloc sees only objects "
             "of Python's own allocator).";
    if (name.starts_with("JavaCalls::"))
      return "It is called from Java: async-profiler (asprof -e mmap PID) shows the Java lines; jcmd PID "
             "Compiler.perfmap (JDK 17 and later) before the next trace names compiled frames, and a JVM "
             "started with -XX:+PreserveFramePointer has all of them in its stacks.";
    if (name.starts_with("node::") || name.starts_with("v8::") || name.starts_with("Builtins_"))
      return "It is called from JavaScript: node --perf-basic-prof names its frames in a trace.";
  }
  return "";
}

}  // namespace whomap
