// SPDX-License-Identifier: Apache-2.0
//
// pthread_cancel. If a thread were cancelled within a call, whatever it holds (the lead of a group
// of the log, a turn, a lock) would never be released, and other threads would wait for ever. While
// a NoCancel lives its thread is not cancelled; a request made meanwhile takes effect at the next
// chance after it.
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
