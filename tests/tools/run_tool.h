// SPDX-License-Identifier: Apache-2.0
//
// Runs one of the built programs and catches what it says.
#pragma once

#include <string>
#include <vector>

namespace cairn::testing {

struct ToolResult {
  int exit_code = -1;  // -1: it did not exit.
  std::string output;  // Standard output.
  std::string errors;  // Standard error.
};

// `program` is a name in the folder of the built programs. Arguments are passed as they are, no
// shell sees them. `input` is its standard input. Ends the test program if nothing can be started.
ToolResult RunTool(const std::string& program, const std::vector<std::string>& arguments,
                   const std::string& input = {});

}  // namespace cairn::testing
