// SPDX-License-Identifier: Apache-2.0
//
// The work of a swarm's clients, each on branches of its own, and their notes of it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/core/seeded_random.h"
#include "base/io/world.h"
#include "cairn/store.h"
#include "tests/sim/known_branches.h"
#include "tests/sim/known_objects.h"
#include "tests/sim/swarm.h"
#include "tests/sim/swarm_config.h"
#include "tests/sim/swarm_faults.h"

namespace cairn::sim {

// Reads all branches. Corrupt ones are part of the result if the disk `lied`.
Result<FoundBranches> ReadAll(const Store& store, bool lied, SwarmResult* result);
// Whether a message says where the damage is.
bool NamesAPlace(const Status& status);

class SwarmClients {
 public:
  SwarmClients(const SwarmConfig& config, const SwarmOptions& options, const SwarmFaults& faults,
               SwarmResult* result)
      : config_(config),
        options_(options),
        faults_(faults),
        random_(options.seed ^ 0x636c69656e74),
        result_(result) {
    for (uint32_t& weight : weights_) weight = random_.Below(3) == 0 ? 0 : 1 + random_.Below(4);
    clients_.resize(config.clients);
    for (uint32_t i = 0; i < config.clients; ++i) {
      clients_[i].number = i;
      clients_[i].random = SeededRandom(random_.Next());
    }
  }

  // Works until `operations` were done or Stop was called, or half way through closes the store;
  // then how that went.
  std::optional<Status> Work(Store* store, const io::World& world, uint64_t operations,
                             bool closes_in_the_midst);
  void Stop() { stop_ = true; }
  // Whether the store, whose log failed, has reported it: what it shows does not change any more.
  void set_rolled_back(bool rolled_back) { rolled_back_ = rolled_back; }
  // The store is gone, and its tickets are with it.
  void EndLife() {
    for (Client& client : clients_) client.pending.clear();
    stop_ = false;
  }
  bool stopped() const { return stop_; }

  KnownBranches& known() { return known_; }
  KnownObjects& objects() { return objects_; }
  // Compares the objects of an opened store with the possible ones, and adopts them. Returns the
  // fault, or nothing.
  std::string AdoptObjects(const Store& store, Durability survived);
  void Violation(const std::string& what) {
    if (result_->violation.empty()) result_->violation = what;
  }
  // Whether the store may say so; else that is a violation.
  bool Tell(const Status& status, const std::string& who);

 private:
  struct Pending {
    Ticket ticket;
    size_t branch, version;
    Durability level;
  };
  struct Client {
    uint32_t number = 0;
    SeededRandom random{0};
    std::deque<Pending> pending;
    bool over = false;
  };
  // A change under way.
  struct Change {
    uint64_t operation = 0, begin = 0;
    Durability level = Durability::kMemory;
    bool writable = false;
    std::vector<size_t> branches;
  };
  enum Op : uint8_t {
    kAppend,
    kAppendMany,
    kDraft,
    kFill,
    kCreate,
    kFork,
    kRewind,
    kRename,
    kDrop,
    kBatch,
    kRead,
    kReadAsync,
    kTidy,
    kCopy,
    kOps,
    // Drawn beside these, so that runs without them are as they were.
    kFind,
    kObjects,
  };

  void Body(Client& client);
  void Follow(Client& client);
  void DoOne(Client& client);

  void Append(Client& client, size_t index);
  void AppendMany(Client& client, size_t index);
  void CommitDraft(Client& client, size_t index);
  void Fill(Client& client, size_t index);
  void Create(Client& client);
  void Fork(Client& client);
  void Rewind(Client& client, size_t index);
  void Rename(Client& client, size_t index);
  void Drop(Client& client, size_t index);
  void Batch(Client& client, size_t index);
  void Read(Client& client);
  void ReadAsync(Client& client);
  void Tidy(Client& client);
  void Copy();

  void Find(Client& client);
  uint64_t LongestCommon(std::span<const TokenId> ids, bool mixed,
                         std::span<const std::string_view> namespaces) const;
  void ReadHit(const PrefixHit& hit, std::span<const TokenId> ids, bool mixed);

  using ReadObject = std::optional<ObjectBytes>;  // Nothing: there is none.
  void DoObjects(Client& client);
  void PutObjects(Client& client, const std::vector<std::string>& keys);
  void DeleteObjects(Client& client, const std::vector<std::string>& keys);
  void GetObjects(Client& client, const std::vector<std::string>& keys);
  void GetOnLease(Client& client, const std::vector<std::string>& keys);
  std::vector<std::optional<ReadObject>> ReadObjects(const Store& store,
                                                     const std::vector<std::string>& keys,
                                                     const char* who);
  std::vector<std::string> PickKeys(Client& client);
  KnownObjects::Doubts Doubts() const;
  // The durability that a call at that level has promised.
  int Acknowledged(Durability level) const {
    return static_cast<int>(level >= options_.claimed ? Durability::kPower : level);
  }

  std::optional<size_t> Pick(Client& client);     // One that the client may change.
  std::optional<size_t> PickAny(Client& client);  // Anybody's that is not being changed.
  // As it is before it is changed; nothing: somebody looks at it, or it cannot be had.
  std::optional<Branch> Handle(size_t index, const std::string& who);
  KvMemory Grow(Client& client, BranchState* state, uint64_t count, bool samples);
  Durability Level(Client& client) { return static_cast<Durability>(client.random.Below(3)); }
  std::string NewName(const Client& client) {
    return "c" + std::to_string(client.number) + "." + std::to_string(++next_name_);
  }
  AppendOptions DrawOptions(Client& client, Durability level, uint64_t length);
  bool IsPoisoned() const { return store_->poisoned().code() == StatusCode::kPoisoned; }

  Change Begin(Durability level);
  void Push(Change* change, size_t index, std::shared_ptr<const BranchState> state,
            const std::string& name, bool loses_kv = false);
  // As the call said. Whether the change was made.
  bool End(Client& client, const Change& change, const Status& status, const std::string& who,
           bool acknowledged = true);
  void Make(const Change& change, bool acknowledged);
  void Unmake(const Change& change);
  void AdoptKv(size_t index, const Result<Branch>& branch);
  // Applied, and not known to be safe yet.
  void AddPending(Client& client, const Change& change, Ticket ticket);
  void Settle(Client& client);

  const SwarmConfig& config_;
  const SwarmOptions options_;
  const SwarmFaults& faults_;
  SeededRandom random_;
  SwarmResult* const result_;
  std::array<uint32_t, kOps> weights_{};
  std::vector<Client> clients_;
  KnownBranches known_;
  KnownObjects objects_;
  uint64_t next_name_ = 0, next_copy_ = 0, next_generation_ = 0;

  Store* store_ = nullptr;
  io::World world_;
  uint64_t left_ = 0;  // Operations of this life.
  uint32_t working_ = 0;
  bool stop_ = false, closing_ = false, rolled_back_ = false;
};

}  // namespace cairn::sim
