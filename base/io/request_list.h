// SPDX-License-Identifier: Apache-2.0
//
// A FIFO of requests, linked through Request::next. Not thread-safe.
#pragma once

#include "base/io/world.h"

namespace cairn::io {

class RequestList {
 public:
  bool empty() const { return head_ == nullptr; }
  void PushBack(Request* request) {
    request->next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = request;
    tail_ = request;
  }
  Request* PopFront() {
    Request* request = head_;
    head_ = head_->next;
    return request;
  }

 private:
  Request* head_ = nullptr;
  Request* tail_ = nullptr;
};

}  // namespace cairn::io
