// SPDX-License-Identifier: Apache-2.0
//
// Property: over histories of forks, rewinds, drops, seals, joins, leases, restarts, kills and
// power losses every hit, also one of a reader in another process, has the ids that it claims, to
// the token, and none is shorter than the best branch's match, unless it says that it is not
// complete. Leased content stays. Method: generated histories on a simulated machine beside a book
// that holds every branch's ids and compares all of them with the query.
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sim/world.h"
#include "tests/engine/find_test.h"
#include "tests/support/test_seed.h"

namespace cairn::testing {
namespace {

// Few enough that every one is looked at, whatever they have in common.
constexpr size_t kBranches = 6, kLeases = 2;

class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {
    options_.world = std::make_shared<io::World>(machine_.world());
    options_.replay_records_max = 40;
    for (uint64_t i = 0; i < 3; ++i) documents_.push_back(Tokens(400, 1000 + i));
  }

  void Run(int steps) {
    ASSERT_NO_FATAL_FAILURE(Open());
    for (int i = 0; i < steps; ++i) {
      SCOPED_TRACE("step " + std::to_string(i));
      ASSERT_NO_FATAL_FAILURE(Step());
      if (Draw(3) != 0) continue;
      ASSERT_NO_FATAL_FAILURE(Ask());
    }
    ASSERT_NO_FATAL_FAILURE(Ask());
    ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages[0].where << report.damages[0].what;
  }
  uint64_t hits() const { return hits_; }
  uint64_t incomplete() const { return incomplete_; }
  uint64_t readers() const { return readers_; }

 private:
  struct Lease {
    PrefixHit hit;
    std::vector<TokenId> ids;
    std::string ns;
  };
  using Key = std::pair<std::string, std::string>;  // Namespace, name.

  uint64_t Draw(uint64_t below) { return random_() % below; }
  std::string DrawNs() { return Draw(4) == 0 ? "b" : "a"; }

  void Open() {
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(model_, store_.RegisterModel(spec_));
    leases_.clear();
  }
  // Goes on as a document does, so that branches have much in common, or as nothing does.
  std::vector<TokenId> DrawMore(const std::vector<TokenId>& ids) {
    const uint64_t count = 1 + Draw(Draw(2) == 0 ? 8 : 150);
    if (Draw(3) == 0) return Tokens(count, random_());
    const std::vector<TokenId>& document = documents_[Draw(documents_.size())];
    const size_t begin = std::min(ids.size(), document.size());
    return {document.begin() + static_cast<std::ptrdiff_t>(begin),
            document.begin() +
                static_cast<std::ptrdiff_t>(std::min<size_t>(document.size(), begin + count))};
  }
  Branch At(const Key& key) {
    auto found = store_.FindBranch(key.second, key.first);
    EXPECT_OK(found);
    return *found;
  }
  std::map<Key, std::vector<TokenId>>::iterator DrawBranch() {
    return std::next(book_.begin(), static_cast<std::ptrdiff_t>(Draw(book_.size())));
  }
  void Append(Branch branch, std::vector<TokenId>* ids) {
    const std::vector<TokenId> more = DrawMore(*ids);
    if (more.empty()) return;
    KvSet kv(spec_, Layout::kContiguous, ids->size(), more.size());
    kv.Write(kSeed, ids->size(), ids->size() + more.size());
    ASSERT_OK(branch.AppendSync(MakeDelta(more, kv.View(ids->size(), more.size())),
                                {.durability = Durability::kPower}));
    ids->insert(ids->end(), more.begin(), more.end());
  }

  void Step() {
    const uint64_t what = book_.empty() ? 0 : Draw(20);
    if (what < 2 && book_.size() < kBranches) return Create();
    if (book_.empty()) return;
    const auto at = DrawBranch();
    if (what < 9) return Append(At(at->first), &at->second);
    if (what < 12 && book_.size() < kBranches) return Fork(at->first, at->second);
    if (what < 15) {
      at->second.resize(Draw(at->second.size() + 1));
      ASSERT_OK(At(at->first).Rewind(at->second.size()));
      return Append(At(at->first), &at->second);
    }
    if (what == 15) {
      ASSERT_OK(At(at->first).Drop());
      book_.erase(at);
    }
    if (what == 16) {
      ASSERT_OK(store_.Compact());
    }
    if (what == 17) {
      ASSERT_OK(store_.Flush());
      if (const uint64_t how = Draw(3); how != 0) {
        // Killed, or without power: what was not synced may survive in part.
        machine_.disk = std::shared_ptr<io::SimDisk>(
            how == 1 ? machine_.disk->KillClone()
                     : machine_.disk->CrashClone(io::CrashChoice::Seeded(random_())));
        options_.world = std::make_shared<io::World>(
            io::World{.files = machine_.disk, .scheduler = machine_.scheduler});
      }
      ASSERT_OK(store_.Close());
      ASSERT_NO_FATAL_FAILURE(Open());
    }
    if (what == 18) TakeLease();
    if (what == 19) CheckLeases();
  }
  void Create() {
    const Key key{DrawNs(), "chat-" + std::to_string(named_++)};
    ASSERT_OK_ASSIGN(Branch branch,
                     store_.CreateBranch(model_, {.name = key.second, .ns = key.first}));
    Append(branch, &book_[key]);
  }
  void Fork(const Key& from, std::vector<TokenId> ids) {
    const Key key{Draw(5) == 0 ? DrawNs() : from.first, "fork-" + std::to_string(named_++)};
    ids.resize(Draw(ids.size() + 1));
    ASSERT_OK_ASSIGN(Branch branch,
                     At(from).ForkAt(ids.size(), {.name = key.second, .ns = key.first}));
    Append(branch, &ids);
    book_[key] = ids;
    // It is found in its namespace by what it has of its own, which it may lose again.
    if (key.first != from.first || crossed_.contains(from)) crossed_.insert(key);
  }

  // The ids of some branch, cut somewhere, and other ids behind.
  std::vector<TokenId> DrawPrompt() {
    std::vector<TokenId> ids =
        book_.empty() || Draw(8) == 0 ? documents_[Draw(documents_.size())] : DrawBranch()->second;
    if (Draw(2) == 0) ids.resize(Draw(ids.size() + 1));
    for (const TokenId id : Tokens(Draw(100), random_())) ids.push_back(id);
    return ids;
  }
  PrefixHit Find(const std::string& ns, std::span<const TokenId> ids, uint64_t lease_ns = 0) {
    PrefixQuery query;
    query.model = model_;
    query.tokens = ids;
    query.ns = ns;
    query.lease_ns = lease_ns;
    const auto hit = store_.FindPrefix(query);
    EXPECT_OK(hit);
    return hit.ok() ? *hit : PrefixHit();
  }
  uint64_t Best(const std::string& ns, std::span<const TokenId> ids) {
    uint64_t best = 0;
    for (const auto& [key, has] : book_) {
      if (key.first != ns || crossed_.contains(key)) continue;
      const auto end = std::mismatch(ids.begin(), ids.end(), has.begin(), has.end()).first;
      best = std::max(best, static_cast<uint64_t>(end - ids.begin()));
    }
    return best < kPrefixBlock ? 0 : best;
  }
  void Ask() {
    const std::string ns = DrawNs();
    const std::vector<TokenId> ids = DrawPrompt();
    const PrefixHit hit = Find(ns, ids);
    const uint64_t best = Best(ns, ids);
    if (hit.complete) {
      EXPECT_GE(hit.matched, best) << "in namespace " << ns;
    } else {
      ++incomplete_;
    }
    // A hit without a lease is used at once: the flush for the reader may join its node to another.
    if (hit.found()) {
      ASSERT_NO_FATAL_FAILURE(Use(hit, ids));
    }
    if (Draw(8) == 0) {
      ASSERT_NO_FATAL_FAILURE(AskAReader(ns, ids, best));
    }
  }
  // Another process, which shows the same.
  void AskAReader(const std::string& ns, std::span<const TokenId> ids, uint64_t best) {
    ASSERT_OK(store_.Flush());
    Options options = options_;
    options.read_only = true;
    options.create_if_missing = false;
    ASSERT_OK_ASSIGN(const Store reader, Store::Open("/store", options));
    PrefixQuery query;
    query.model = model_;
    query.tokens = ids;
    query.ns = ns;
    const auto hit = reader.FindPrefix(query);
    // Its writer is rebuilding the hints.
    if (hit.status().code() == StatusCode::kInvalidState) return;
    ASSERT_OK(hit);
    ++readers_;
    EXPECT_TRUE(!hit->complete || hit->matched >= best) << "by a reader, in namespace " << ns;
    if (!hit->found()) return;
    std::vector<TokenId> got(hit->matched);
    RestoreRequest request;
    request.tokens = got;
    ASSERT_OK(reader.Restore(*hit, request));
    EXPECT_TRUE(std::equal(got.begin(), got.end(), ids.begin())) << "other ids";
  }
  void Use(const PrefixHit& hit, std::span<const TokenId> ids) {
    ++hits_;
    EXPECT_TRUE(hit.confirmed);
    ASSERT_LE(hit.matched, ids.size());
    ASSERT_OK_ASSIGN(Branch fork, store_.Fork(hit, hit.matched));
    ASSERT_OK_ASSIGN(const std::vector<TokenId> got, fork.ReadTokens(0, UINT64_MAX));
    ASSERT_EQ(hit.matched, got.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), ids.begin())) << "other ids";
    EXPECT_TRUE(HasKv(fork, spec_, 0, hit.restorable));
    EXPECT_EQ(hit.matched, hit.restorable) << "all KV is there";
    ASSERT_OK(fork.Drop());
  }
  void TakeLease() {
    if (leases_.size() == kLeases) return CheckLeases();
    Lease lease{.hit = {}, .ids = DrawPrompt(), .ns = DrawNs()};
    lease.hit = Find(lease.ns, lease.ids, kMinute);
    if (lease.hit.found()) leases_.push_back(std::move(lease));
  }
  // Those that something still needs: a drop of the last branch ends them.
  void CheckLeases() {
    for (const Lease& lease : leases_) {
      const auto fork = store_.Fork(lease.hit, lease.hit.matched);
      if (fork.status().code() == StatusCode::kNotFound) continue;
      ASSERT_OK(fork);
      ASSERT_OK(fork->ReadTokens(0, UINT64_MAX));
      EXPECT_TRUE(std::equal(lease.ids.begin(),
                             lease.ids.begin() + static_cast<std::ptrdiff_t>(lease.hit.matched),
                             fork->ReadTokens(0, UINT64_MAX)->begin()));
      ASSERT_OK(Branch(*fork).Drop());
      ASSERT_OK(store_.Release(lease.hit.lease));
    }
    leases_.clear();
  }

  std::mt19937_64 random_;
  io::SimWorld machine_ = io::MakeSimWorld(1);
  Options options_ = FindingOptions();
  const ModelSpec spec_ = TinyModel();
  Store store_;
  ModelId model_{};
  std::vector<std::vector<TokenId>> documents_;
  std::map<Key, std::vector<TokenId>> book_;
  std::set<Key> crossed_;  // Namespaces, somewhere on their path.
  std::vector<Lease> leases_;
  uint64_t named_ = 0, hits_ = 0, incomplete_ = 0, readers_ = 0;
};

TEST(FindRandom, HitsAreTrueAndNoneIsMissing) {
  const uint64_t first = QuickTestSeed();
  uint64_t hits = 0, incomplete = 0, readers = 0;
  for (uint64_t seed = first; seed < first + 12; ++seed) {
    const Repeatable repeatable(seed);
    SCOPED_TRACE(repeatable.command());
    History history(seed);
    ASSERT_NO_FATAL_FAILURE(history.Run(250));
    hits += history.hits();
    incomplete += history.incomplete();
    readers += history.readers();
  }
  EXPECT_GT(hits, 12u * 20) << "it has looked at next to nothing";
  EXPECT_LT(incomplete, hits / 4);
  EXPECT_GT(readers, 12u);
}

}  // namespace
}  // namespace cairn::testing
