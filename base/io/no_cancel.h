// SPDX-License-Identifier: Apache-2.0
//
// pthread_cancel. A thread that ended within a call would leave what it holds to nobody: the lead
// of a group of the log, a turn, a lock; and others would wait for it for ever. While a NoCancel
// lives its thread is not cancelled; what was asked meanwhile happens at the next chance behind it.
#pragma once

#include <pthread.h>

#include "base/core/mutation.h"

namespace cairn::io {

class NoCancel {
 public:
  NoCancel() {
    if (CAIRN_KEPT(kNoCancel)) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
  }
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace cairn::io
