// SPDX-License-Identifier: Apache-2.0
//
// The files of page/, which the build puts into the program (cmake/CairnTools.cmake).
#pragma once

#include <string_view>

namespace cairn::cli {

extern const std::string_view kTreeHtml, kTreeCss, kTreeScript;
extern const std::string_view kTreeScriptSha256;  // In hexadecimal.

}  // namespace cairn::cli
