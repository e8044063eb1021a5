# SPDX-License-Identifier: Apache-2.0
# Everything whomap links; all of it is packaged by Debian and Ubuntu (./dev installs it).
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(ZLIB REQUIRED)
find_package(absl REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(tl-expected REQUIRED)
find_package(Boost REQUIRED COMPONENTS program_options)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
pkg_check_modules(NCURSES REQUIRED IMPORTED_TARGET ncursesw)
pkg_check_modules(ELFUTILS REQUIRED IMPORTED_TARGET libdw libelf)

# Debian's zydis package has a CMake configuration on some releases and only a library on others.
find_path(ZYDIS_INCLUDE_DIR Zydis/Zydis.h REQUIRED)
find_library(ZYDIS_LIBRARY Zydis REQUIRED)
add_library(whomap_zydis INTERFACE)
target_include_directories(whomap_zydis SYSTEM INTERFACE ${ZYDIS_INCLUDE_DIR})
target_link_libraries(whomap_zydis INTERFACE ${ZYDIS_LIBRARY})
