// SPDX-License-Identifier: Apache-2.0
//
// A queue that executes each request inside Submit, for file systems in memory.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "base/core/check.h"
#include "base/io/request_list.h"
#include "base/io/world.h"

namespace cairn::io {

class InlineQueue final : public Queue {
 public:
  // `run` sets status and transferred.
  InlineQueue(size_t depth, std::function<void(Request&)> run)
      : depth_(depth), run_(std::move(run)) {
    CAIRN_CHECK(depth_ > 0);
  }

  void Submit(Request* request) override {
    CAIRN_CHECK(in_flight_ < depth_);
    ++in_flight_;
    request->status = Status();
    request->transferred = 0;
    run_(*request);
    done_.PushBack(request);
  }

  Request* Reap() override {
    CAIRN_CHECK(in_flight_ > 0);
    --in_flight_;
    return done_.PopFront();
  }

  size_t in_flight() const override { return in_flight_; }

 private:
  const size_t depth_;
  const std::function<void(Request&)> run_;
  size_t in_flight_ = 0;
  RequestList done_;
};

}  // namespace cairn::io
