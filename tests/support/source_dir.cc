// SPDX-License-Identifier: Apache-2.0
#include "tests/support/source_dir.h"

namespace cairn::testing {

std::string SourcePath(const std::string& below) { return CAIRN_SOURCE_DIR + below; }

}  // namespace cairn::testing
