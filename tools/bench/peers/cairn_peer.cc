// SPDX-License-Identifier: Apache-2.0
//
// Cairn itself: a session is a branch, a chunk is a delta.

#include <mutex>
#include <unordered_map>

#include "base/core/check.h"
#include "tools/bench/fixture.h"
#include "tools/bench/peers/peer.h"

namespace cairn::bench {
namespace {

class CairnPeer : public Peer {
 public:
  explicit CairnPeer(PeerOptions options) : settings_(std::move(options)) {
    options_.create_if_missing = true;
    options_.segment_bytes = settings_.segment_bytes;
    options_.spare_segments_max = std::max(options_.spare_segments_min, settings_.spare_segments);
    options_.max_memory_bytes = settings_.cache_bytes;
    options_.hot_tail_bytes = settings_.hot_bytes;
    options_.log_bytes_max = settings_.log_bytes;
  }

  Status Reopen() override {
    CAIRN_ASSIGN_OR_RETURN(store_, Store::Open(settings_.path, options_));
    CAIRN_ASSIGN_OR_RETURN(model_, store_.RegisterModel(settings_.model));
    for (auto& [session, branch] : branches_) {
      CAIRN_ASSIGN_OR_RETURN(branch, store_.GetBranch(branch.id()));
    }
    return Status::Ok();
  }

  Status Append(const Chunk& chunk, bool durable) override {
    const Durability durability = durable ? Durability::kPower : Durability::kMemory;
    Branch branch;
    if (chunk.index == 0) {
      CAIRN_ASSIGN_OR_RETURN(branch, store_.CreateBranch(model_, UnnamedAt(Durability::kMemory)));
      const std::lock_guard lock(mutex_);
      branches_[chunk.session] = branch;
    } else {
      const std::lock_guard lock(mutex_);
      branch = branches_.at(chunk.session);
    }
    AppendOptions append = AppendAt(durability);
    append.expected_length = chunk.index * chunk.ids.size();
    return branch.AppendSync(TokenDelta(chunk.ids, chunk.view), append).status();
  }

  Status Sync() override { return store_.Flush(); }

  Status Fork(SessionId parent, uint64_t chunks, uint64_t chunk_tokens,
              SessionId session) override {
    CAIRN_ASSIGN_OR_RETURN(
        branches_[session],
        branches_.at(parent).ForkAt(chunks * chunk_tokens, UnnamedAt(Durability::kMemory)));
    return Status::Ok();
  }

  Status Restore(const RestoreTarget& target) override {
    RestoreRequest request;
    request.end = target.ids.size();
    request.tokens = target.ids;
    request.into = target.view;
    CAIRN_ASSIGN_OR_RETURN(const RestoreResult result,
                           branches_.at(target.session).Restore(request));
    CAIRN_CHECK(result.end == target.ids.size());
    return Status::Ok();
  }

  Status Settle() override { return WaitForPool(store_, 0); }
  Status FinishBackground() override {
    CAIRN_RETURN_IF_ERROR(store_.Compact());
    return WaitForPool(store_, 0);
  }
  Status Close() override { return store_.Close(); }

  nlohmann::json Settings() const override {
    return {{"version", Version()},
            {"io_backend", store_.io_name()},
            {"sync_method", store_.sync_method()},
            {"segment_bytes", options_.segment_bytes},
            {"spare_segments_max", options_.spare_segments_max},
            {"max_memory_bytes", options_.max_memory_bytes},
            {"hot_tail_bytes", options_.hot_tail_bytes},
            {"log_bytes_max", options_.log_bytes_max},
            {"durable", "Durability::kPower"},
            {"not_durable", "Durability::kMemory, then Store::Flush"}};
  }

 private:
  const PeerOptions settings_;
  Options options_{};
  Store store_{};
  ModelId model_{};
  std::mutex mutex_{};  // Guards the table alone.
  std::unordered_map<SessionId, Branch> branches_{};
};

}  // namespace

Result<std::unique_ptr<Peer>> OpenCairnPeer(const PeerOptions& options) {
  return OpenPeer<CairnPeer>(options);
}

}  // namespace cairn::bench
