// SPDX-License-Identifier: Apache-2.0
//
// A file system in front of another, for a store that keeps files open which it could do without:
// if a file must be opened and the process has no descriptor left, it closes those first. Otherwise
// the log's next segment might get no descriptor while dozens of files are open that nobody reads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "base/io/forwarding_file_system.h"

namespace cairn::io {

class DescriptorRelief final : public ForwardingFileSystem {
  // First, since its type follows from its body.
  static const Status& StatusOf(const Status& status) { return status; }
  template <typename T>
  static Status StatusOf(const Result<T>& result) {
    return result.status();
  }
  template <typename Call>
  auto Relieved(const Call& call) {
    auto called = call();
    if (StatusOf(called).reason() == StatusReason::kNoDescriptor && let_go_()) called = call();
    return called;
  }

 public:
  // `let_go` closes what it can, and says whether it closed any. Called by any thread that opens.
  DescriptorRelief(std::shared_ptr<FileSystem> inner, std::function<bool()> let_go)
      : ForwardingFileSystem(std::move(inner)), let_go_(std::move(let_go)) {}

  Result<std::shared_ptr<FileSystem>> Hold(const std::string& path) override {
    CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<FileSystem> held, inner().Hold(path));
    if (held == nullptr) return held;
    return std::shared_ptr<FileSystem>(
        std::make_shared<DescriptorRelief>(std::move(held), let_go_));
  }
  Result<std::unique_ptr<File>> Open(const std::string& path, const OpenOptions& options) override {
    return Relieved([&] { return inner().Open(path, options); });
  }
  Status SyncDirectory(const std::string& path) override {
    return Relieved([&] { return inner().SyncDirectory(path); });
  }
  Result<std::vector<std::string>> List(const std::string& path) override {
    return Relieved([&] { return inner().List(path); });
  }

 private:
  const std::function<bool()> let_go_;
};

}  // namespace cairn::io
