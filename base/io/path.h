// SPDX-License-Identifier: Apache-2.0
//
// Paths as text: "/"-separated, never looked up.
#pragma once

#include <string>
#include <string_view>

#include "cairn/status.h"

namespace cairn::io {

// kInvalidArgument when it is empty, or has a zero byte, at which the system would cut it.
Status CheckPath(std::string_view path);

// "a" and "b" give "a/b"; an empty directory gives "b".
std::string JoinPath(std::string_view directory, std::string_view name);

// "a/b/c" gives "a/b"; "c" gives "."; "/c" gives "/".
std::string ParentPath(std::string_view path);

// "a/b/c" gives "c".
std::string BaseName(std::string_view path);

// "a/b//" gives "a/b"; "/" stays.
std::string_view WithoutTrailingSlashes(std::string_view path);

// Without empty and "." parts and without a leading "/"; the root is "". For the file systems in
// memory, which have no working directory. ".." is not interpreted.
std::string NormalPath(std::string_view path);

}  // namespace cairn::io
