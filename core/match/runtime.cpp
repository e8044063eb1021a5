// SPDX-License-Identifier: Apache-2.0
#include "core/match/runtime.h"

#include <algorithm>
#include <array>

namespace whomap {
namespace {

/// CPython: Objects/obmalloc.c and the allocation functions of Modules/gcmodule.c and Objects/typeobject.c.
constexpr std::array<std::string_view, 29> cpython_functions{"_PyObject_ArenaMmap",
                                                             "_PyObject_ArenaAlloc",
                                                             "_PyMem_ArenaAlloc",
                                                             "new_arena",
                                                             "allocate_from_new_pool",
                                                             "pymalloc_alloc",
                                                             "pymalloc_realloc",
                                                             "_PyObject_Malloc",
                                                             "PyObject_Malloc",
                                                             "_PyObject_Calloc",
                                                             "PyObject_Calloc",
                                                             "_PyObject_Realloc",
                                                             "PyObject_Realloc",
                                                             "PyMem_Malloc",
                                                             "PyMem_Calloc",
                                                             "PyMem_Realloc",
                                                             "_PyMem_RawMalloc",
                                                             "PyMem_RawMalloc",
                                                             "PyMem_RawCalloc",
                                                             "PyMem_RawRealloc",
                                                             "_PyObject_New",
                                                             "_PyObject_NewVar",
                                                             "_PyObject_GC_New",
                                                             "_PyObject_GC_NewVar",
                                                             "gc_alloc",
                                                             "_PyObject_GC_Alloc",
                                                             "_PyObject_GC_Malloc",
                                                             "PyType_GenericAlloc",
                                                             "_PyType_AllocNoTrack"};

bool is_go(std::string_view name) {
  // runtime.main and runtime.goexit are where a goroutine begins, not its memory manager.
  return name.starts_with("runtime.") && name != "runtime.main" && name != "runtime.goexit" &&
         name != "runtime.goexit.abi0";
}

/// HotSpot: the operating system layer and the spaces it commits for heap, metaspace and code.
bool is_jvm(std::string_view name, std::string_view module) {
  constexpr std::array<std::string_view, 8> prefixes{
      "os::",         "ReservedSpace",    "VirtualSpace",        "G1PageBasedVirtualSpace",
      "Generation::", "CardGeneration::", "TenuredGeneration::", "metaspace::"};
  return module.starts_with("libjvm.so") &&
         std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

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

std::optional<Runtime> runtime_of(const Frame& frame, std::string_view module) {
  if (!frame.function) return std::nullopt;
  const std::string name = qualified_name(*frame.function);
  if (std::find(cpython_functions.begin(), cpython_functions.end(), name) != cpython_functions.end())
    return Runtime::cpython;
  if (is_go(name)) return Runtime::go;
  if (is_jvm(name, module)) return Runtime::jvm;
  if (name.starts_with("v8::")) return Runtime::v8;
  return std::nullopt;
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
      return "A Python memory profiler (memray, or tracemalloc) shows who holds the objects";
    case Runtime::go: return "Go's heap profile (runtime/pprof, net/http/pprof) shows who holds the objects";
    case Runtime::jvm:
      return "The JVM's own tools show who holds it (jcmd PID GC.class_histogram for the Java heap; jcmd PID "
             "VM.native_memory if it was started with -XX:NativeMemoryTracking=summary)";
    case Runtime::v8:
      return "A heap snapshot of V8 (node --heapsnapshot-signal, or the inspector) shows who holds the "
             "objects";
  }
  return "";
}

}  // namespace whomap
