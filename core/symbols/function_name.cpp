// SPDX-License-Identifier: Apache-2.0
#include "core/symbols/function_name.h"

#include <cxxabi.h>
#include <dwarf.h>

#include <cstdlib>
#include <memory>

namespace whomap {
namespace {

/// Demangling expands back-references, so a short hostile name can become a huge one; real ones of the
/// largest template libraries stay below this.
constexpr std::size_t longest_mangled = 16384;

const char* linkage_name(Dwarf_Die* function) {
  for (const unsigned attribute : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
    Dwarf_Attribute memory;
    if (const char* const name = dwarf_formstring(dwarf_attr_integrate(function, attribute, &memory)))
      return name;
  }
  return nullptr;
}

std::string enclosing_scopes(Dwarf_Die function) {
  Dwarf_Die declaration = declaration_of(function);  // scopes enclose the declaration, not an instance of it
  Dwarf_Die* scopes = nullptr;
  const int count = dwarf_getscopes_die(&declaration, &scopes);
  const std::unique_ptr<Dwarf_Die, decltype(&std::free)> owner(scopes, &std::free);
  std::string prefix;
  for (int i = 1; i < count; ++i) {  // scopes[0] is the declaration itself
    const char* const name = dwarf_diename(&scopes[i]);
    switch (dwarf_tag(&scopes[i])) {
      case DW_TAG_namespace:
        prefix.insert(0, std::string(name != nullptr ? name : "(anonymous namespace)") + "::");
        break;
      case DW_TAG_class_type:
      case DW_TAG_structure_type:
      case DW_TAG_union_type:
        prefix.insert(0, std::string(name != nullptr ? name : "{unnamed type}") + "::");
        break;
      default: break;
    }
  }
  return prefix;
}

}  // namespace

Dwarf_Die declaration_of(Dwarf_Die function) {
  constexpr int longest_chain = 16;
  for (int i = 0; i < longest_chain; ++i) {
    Dwarf_Attribute memory;
    Dwarf_Attribute* reference = dwarf_attr(&function, DW_AT_abstract_origin, &memory);
    if (reference == nullptr) reference = dwarf_attr(&function, DW_AT_specification, &memory);
    Dwarf_Die next;
    if (reference == nullptr || dwarf_formref_die(reference, &next) == nullptr) break;
    function = next;
  }
  return function;
}

std::string demangled(const std::string& name) {
  if (name.size() < 2 || name.size() > longest_mangled || name.compare(0, 2, "_Z") != 0) return name;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? std::string(text.get()) : name;
}

std::optional<std::string> function_name(Dwarf_Die function) {
  if (const char* const linkage = linkage_name(&function)) return demangled(linkage);
  const char* const name = dwarf_diename(&function);
  if (name == nullptr) return std::nullopt;
  return enclosing_scopes(function) + name;
}

const char* linker_name(Dwarf_Die* function) {
  const char* const linkage = linkage_name(function);
  return linkage != nullptr ? linkage : dwarf_diename(function);
}

}  // namespace whomap
