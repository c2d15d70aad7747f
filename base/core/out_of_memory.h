// SPDX-License-Identifier: Apache-2.0
//
// What is said when an allocation failed. Making a Status allocates, and where one allocation
// failed the next may as well: this one was made when the program began.
#pragma once

#include "cairn/status.h"

namespace cairn {

Status OutOfMemory();  // kOutOfMemory. Allocates nothing.

}  // namespace cairn
