// SPDX-License-Identifier: Apache-2.0
// Memory managers of languages: frames that ask the kernel on behalf of everybody, as malloc does.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/symbols/frame.h"

namespace whomap {

enum class Runtime { cpython, go, jvm, v8 };

/// Is it the C++ standard library's: containers and allocators that were asked by the code further out?
bool is_standard_library(const Frame& frame);

/// "CPython", "Go", ...
std::string_view runtime_name(Runtime runtime);
/// The tool that shows who holds this runtime's memory: a sentence.
std::string_view profiler_for(std::optional<Runtime> runtime);

/// Where code of the program's own maps for a caller in Python, Java or JavaScript: what shows that caller. A
/// sentence, or nothing.
std::string_view runtime_lines(const Stack& stack);

/// The qualified name alone: no return type, no parameters, no template arguments.
/// "void std::vector<A>::push_back<B>(C)" -> "std::vector::push_back"
std::string qualified_name(std::string_view demangled);

}  // namespace whomap
