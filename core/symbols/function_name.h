// SPDX-License-Identifier: Apache-2.0
// Names as people write them.
#pragma once

#include <optional>
#include <string>

#include <elfutils/libdw.h>

namespace whomap {

/// The C++ declaration behind a mangled name (Itanium C++ ABI); the name itself when it is not mangled.
std::string demangled(const std::string& name);

/// The name of a function's or inlined call's DIE: its linkage name, demangled; without one, its name
/// with the namespaces and classes around it. nullopt when it has none.
std::optional<std::string> function_name(Dwarf_Die function);

/// The name that the linker knows the function by, not demangled; nullptr when it has none.
const char* linker_name(Dwarf_Die* function);

/// The DIE that first declared the function: of all its instances, abstract and concrete, the same one.
Dwarf_Die declaration_of(Dwarf_Die function);

}  // namespace whomap
