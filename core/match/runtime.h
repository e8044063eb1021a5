// SPDX-License-Identifier: Apache-2.0
// Memory managers of languages: frames that ask the kernel on behalf of everybody, as malloc does.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/symbols/frame.h"

namespace whomap {

enum class Runtime { cpython, go, jvm, v8 };

/// The runtime whose memory manager this frame belongs to, by its function's name; nullopt for all others,
/// and for frames without a name.
std::optional<Runtime> runtime_of(const Frame& frame, std::string_view module);

/// Is it the C++ standard library's: containers and allocators that were asked by the code further out?
bool is_standard_library(const Frame& frame);

/// "CPython", "Go", ...
std::string_view runtime_name(Runtime runtime);
/// The tool that shows who holds this runtime's memory: a sentence.
std::string_view profiler_for(std::optional<Runtime> runtime);

/// The qualified name alone: no return type, no parameters, no template arguments.
/// "void std::vector<A>::push_back<B>(C)" -> "std::vector::push_back"
std::string qualified_name(std::string_view demangled);

}  // namespace whomap
