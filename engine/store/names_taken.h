// SPDX-License-Identifier: Apache-2.0
//
// Names of work that must not run twice at once. Thread-safe.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "base/core/mutex.h"

namespace cairn::engine {

class NamesTaken {
 public:
  // Has the name while it lives, if it got it.
  class Holder {
   public:
    Holder(NamesTaken* names, std::string name)
        : names_(names), name_(std::move(name)), has_it_(names_->Take(name_)) {}
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    ~Holder() {
      if (has_it_) names_->Release(name_);
    }
    bool has_it() const { return has_it_; }

   private:
    NamesTaken* const names_;
    const std::string name_;
    const bool has_it_;
  };

 private:
  bool Take(const std::string& name) {
    MutexLock lock(&mutex_);
    return names_.insert(name).second;
  }
  void Release(const std::string& name) {
    MutexLock lock(&mutex_);
    names_.erase(name);
  }

  Mutex mutex_;
  std::set<std::string> names_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
