// SPDX-License-Identifier: Apache-2.0
//
// Property: what a branch has leaves as a file and comes back: any mix of groups, gaps, lagging and
// approximate KV, spans, states and names; whole, or in parts that name each other; and whatever
// fails leaves the store as it was.
#include <cstring>
#include <limits>

#include "base/core/seeded_random.h"
#include "tests/exchange/exchange_test.h"
#include "tests/support/test_seed.h"

namespace cairn::testing {
namespace {

using ExportTest = ExchangeTest;

SamplerState Sampler(uint64_t number) {
  SamplerState state;
  state.generator = number % 2 == 0 ? GeneratorKind::kPhilox : GeneratorKind::kNamed;
  state.philox_seed = UINT64_MAX - number;
  state.philox_offset = number;
  state.blob_name = number % 2 == 0 ? "" : "caf\xc3\xa9 \xff";
  state.blob_version = 7;
  state.blob.assign(number % 300, std::byte{0x81});
  state.temperature = number % 3 == 0 ? -0.0 : 0.1 * static_cast<double>(number);
  state.top_p = std::numeric_limits<double>::infinity();
  state.min_p = 1e-300;
  state.top_k = 40;
  state.last_logits.assign(number % 5, -1.5F);
  return state;
}

TEST_F(ExportTest, EveryKindOfGroupComesBack) {
  const ModelSpec spec = EveryRuleModel();
  Branch chat = Create(spec, "chat");
  ASSERT_OK(chat.SetKeep({.pinned = true, .priority = 3, .ttl_ns = 5'000'000'000}));
  Append(chat, spec, 20);
  Append(chat, spec, 7, /*exact=*/false);
  Append(chat, spec, 9);
  ASSERT_OK(from_.Compact());
  Append(chat, spec, 5, /*exact=*/false);
  // A token that was just sampled, without KV.
  const std::vector<TokenId> last = {UINT32_MAX};
  ASSERT_OK(chat.AppendSync({.tokens = last}));
  ASSERT_OK_ASSIGN(const ExportInfo made, ExportBranch(chat, "/chat.safetensors"));
  EXPECT_EQ(42U, made.end);
  EXPECT_EQ(32U, made.snapshot_id.size());
  EXPECT_EQ("", made.base_snapshot_id);
  EXPECT_EQ(41U, made.kv_ends[0]);
  EXPECT_EQ(ReadFile("/chat.safetensors").size(), made.file_bytes);
  EXPECT_FALSE(Exists("/chat.safetensors.tmp"));
  uint64_t seen = 0;
  ASSERT_OK_ASSIGN(const ImportInfo brought,
                   ImportBranch(into_, "/chat.safetensors", {}, [&](uint64_t done, uint64_t total) {
                     EXPECT_LE(done, total);
                     seen = done;
                   }));
  EXPECT_GT(seen, made.kv_bytes);
  EXPECT_EQ(0U, brought.found);
  ExpectSame(chat, brought.branch, spec);
  EXPECT_EQ(std::vector<std::string>{"chat"}, Names(into_));
  ASSERT_OK(into_.Compact());
  ASSERT_OK(into_.Close());
  into_ = Open("/into");
  ExpectSame(chat, *into_.FindBranch("chat"), spec);
  // Exported from there it is the same file, but for its times.
  ASSERT_OK(ExportBranch(*into_.FindBranch("chat"), "/again.safetensors"));
  TornFile a = TornFile::Of(ReadFile("/chat.safetensors"));
  TornFile b = TornFile::Of(ReadFile("/again.safetensors"));
  EXPECT_TRUE(a.data == b.data);
  for (TornFile* const one : {&a, &b}) {
    one->header["__metadata__"].erase("created_at");
    one->header["__metadata__"].erase("updated_at");
  }
  EXPECT_EQ(a.header.dump(), b.header.dump());
}

TEST_F(ExportTest, StatesSpansAndOddNames) {
  ModelSpec spec = TinyModel("model \xff z");
  spec.groups[0].name = "group.with.dots";
  spec.groups[0].planes[1].name = spec.groups[0].planes[0].name;
  Branch chat = Create(spec, "name \xfe/\"\\", "space \x01");
  const SamplerState at_0 = Sampler(0);
  ASSERT_OK(chat.AppendSync({.sampler = &at_0}));
  for (uint64_t round = 1; round < 12; ++round) {
    ASSERT_OK_ASSIGN(const uint64_t begin, chat.length());
    KvSet kv(spec, Layout::kContiguous, begin, 5);
    kv.Write(kExportSeed, begin, begin + 5);
    const std::vector<TokenId> ids = Tokens(5, round);
    const SamplerState sampler = Sampler(round);
    const AppMetadata metadata{"application/x", std::vector<std::byte>(round, std::byte{9})};
    const std::vector<ContentSpan> spans = {{begin, begin + 2, {round, UINT64_MAX}, false},
                                            {begin + 2, begin + 5, {1, 2}, true}};
    Delta delta;
    delta.tokens = ids;
    delta.kv = kv.View(begin, 5);
    if (round % 2 == 0) delta.sampler = &sampler;
    if (round % 3 == 0) delta.metadata = &metadata;
    if (round % 4 != 0) delta.spans = spans;
    ASSERT_OK(chat.AppendSync(delta));
  }
  ASSERT_OK(ExportBranch(chat, "/chat"));
  ASSERT_OK_ASSIGN(const ImportInfo brought, ImportBranch(into_, "/chat"));
  ExpectSame(chat, brought.branch, spec);
  ASSERT_OK_ASSIGN(const BranchInfo info, brought.branch.Info());
  EXPECT_EQ("name \xfe/\"\\", info.name);
  EXPECT_EQ("space \x01", info.ns);
  ASSERT_OK_ASSIGN(const ModelInfo model, into_.GetModel(info.model));
  EXPECT_TRUE(model.spec == spec);
  // Names that a tensor's cannot have become numbers.
  const TornFile file = TornFile::Of(ReadFile("/chat"));
  EXPECT_TRUE(file.header.contains("kv.0.1.1"));
  // A forest has them, too.
  ASSERT_OK(ExportForest(from_, "/all"));
  Store third = Open("/third");
  ASSERT_OK(ImportForest(third, "/all"));
  ASSERT_OK_ASSIGN(const Branch copy, third.FindBranch("name \xfe/\"\\", "space \x01"));
  EXPECT_TRUE(*copy.SamplerAt(UINT64_MAX)->sampler == *chat.SamplerAt(UINT64_MAX)->sampler);
  EXPECT_EQ(*copy.Spans(0, 55), *chat.Spans(0, 55));
}

TEST_F(ExportTest, ABranchOfNothingAndOneOfTokensAlone) {
  const ModelSpec spec = TinyModel();
  Branch empty = Create(spec, "empty");
  ASSERT_OK(ExportBranch(empty, "/empty"));
  ASSERT_OK_ASSIGN(const ImportInfo nothing, ImportBranch(into_, "/empty"));
  EXPECT_EQ(0U, nothing.end);
  const ModelSpec tokens = TokenModel();
  Branch text = Create(tokens, "");
  Append(text, tokens, 33);
  ASSERT_OK(ExportBranch(text, "/text"));
  ASSERT_OK_ASSIGN(const ImportInfo brought, ImportBranch(into_, "/text", {.name = "named"}));
  ExpectSame(text, brought.branch, tokens);
  ASSERT_OK_ASSIGN(const ImportInfo unnamed, ImportBranch(into_, "/text"));
  EXPECT_EQ("", unnamed.branch.Info()->name);
  EXPECT_EQ((std::vector<std::string>{"", "empty", "named"}), Names(into_));
  EXPECT_EQ("other", ImportBranch(into_, "/text", {.ns = "other"})->branch.Info()->ns);
}

TEST_F(ExportTest, PartsContinueEachOther) {
  const ModelSpec spec = EveryRuleModel();
  Branch chat = Create(spec, "chat");
  const std::vector<TokenId> sampled = {5};
  std::vector<ExportInfo> parts;
  for (uint64_t begin = 0; parts.size() < 4;) {
    Append(chat, spec, 10 + parts.size());
    // Each part ends with a token that has no KV yet; the next one brings it.
    ASSERT_OK(chat.AppendSync({.tokens = sampled}));
    const std::string file = "/" + std::to_string(parts.size());
    ASSERT_OK_ASSIGN(ExportInfo made, ExportBranch(chat, file, {.begin = begin}));
    begin = made.end;
    parts.push_back(std::move(made));
    ASSERT_OK_ASSIGN(const uint64_t length, chat.length());
    ASSERT_OK(Fill(chat, spec, length - 1));
  }
  for (size_t i = 1; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i - 1].snapshot_id, parts[i].base_snapshot_id);
  }
  const TornFile about = TornFile::Of(ReadFile("/2"));
  EXPECT_EQ(parts[2].base_snapshot_id, about.header["__metadata__"]["base_snapshot_id"]);
  EXPECT_EQ(std::to_string(parts[1].end), about.header["__metadata__"]["start_pos"]);
  EXPECT_EQ(std::to_string(parts[2].end), about.header["__metadata__"]["end_pos"]);
  EXPECT_FAILS(ImportBranch(into_, "/1"), StatusCode::kNotFound, parts[0].snapshot_id);
  ASSERT_OK(ImportBranch(into_, "/0"));
  EXPECT_FAILS(ImportBranch(into_, "/2"), StatusCode::kConflict, parts[1].snapshot_id);
  for (const char* file : {"/1", "/2", "/3"}) {
    ASSERT_OK_ASSIGN(const ImportInfo brought, ImportBranch(into_, file));
    EXPECT_EQ(brought.begin, brought.found);
    // Again changes nothing.
    ASSERT_OK_ASSIGN(const ImportInfo again, ImportBranch(into_, file));
    EXPECT_EQ(again.end, again.found);
  }
  ASSERT_OK_ASSIGN(Branch copy, into_.FindBranch("chat"));
  ASSERT_OK_ASSIGN(const ExportInfo whole, ExportBranch(copy, "/whole"));
  EXPECT_EQ(parts[3].snapshot_id, whole.snapshot_id);
  ASSERT_OK(ImportBranch(into_, "/1"));  // In the middle of it, also nothing.
  // The KV of the last token came behind the last part.
  ASSERT_OK_ASSIGN(const uint64_t length, chat.length());
  ASSERT_OK(Fill(copy, spec, length - 1));
  ExpectSame(chat, copy, spec);
}

TEST_F(ExportTest, APartGoesOnFromItsBaseAlone) {
  const ModelSpec spec = TinyModel();
  Branch chat = Create(spec, "chat");
  Append(chat, spec, 30);
  ASSERT_OK(ExportBranch(chat, "/base", {.end = 10}));
  ASSERT_OK(ExportBranch(chat, "/part", {.begin = 10}));
  // Other tokens before it; other tokens behind it; KV that does not connect.
  ASSERT_OK(ImportBranch(into_, "/base"));
  ASSERT_OK_ASSIGN(Branch copy, into_.FindBranch("chat"));
  ASSERT_OK(copy.ForkAt(10, {.name = "fork"}));
  const std::vector<TokenId> other = {1, 2, 3};
  ASSERT_OK(copy.AppendSync({.tokens = other}));
  EXPECT_FAILS(ImportBranch(into_, "/part"), StatusCode::kConflict, "its first 13 tokens");
  ASSERT_OK(copy.Rewind(9));
  ASSERT_OK(copy.AppendSync({.tokens = other}));
  EXPECT_FAILS(ImportBranch(into_, "/part"), StatusCode::kConflict, "its first 10 tokens");
  EXPECT_EQ(12U, *copy.length());
  ASSERT_OK(ImportBranch(into_, "/part", {.name = "fork"}));
  ASSERT_OK(ExportBranch(chat, "/late", {.begin = 20, .kv_begin = 20}));
  ASSERT_OK_ASSIGN(Branch lags, into_.CreateBranch(Register(into_, spec), {.name = "lags"}));
  ASSERT_OK_ASSIGN(const auto ids, chat.ReadTokens(0, 20));
  ASSERT_OK(lags.AppendSync({.tokens = ids}));
  EXPECT_FAILS(ImportBranch(into_, "/late", {.name = "lags"}), StatusCode::kConflict,
               "kv_begin of 0");
  ASSERT_OK(ExportBranch(chat, "/late", {.begin = 20, .kv_begin = 0, .replace = true}));
  ASSERT_OK(ImportBranch(into_, "/late", {.name = "lags"}));
  ExpectSame(chat, lags, spec);
  ExpectSame(chat, *into_.FindBranch("fork"), spec);
  // A branch of another model.
  const ModelSpec wide = WideModel();
  ASSERT_OK(into_.CreateBranch(Register(into_, wide), {.name = "wide"}));
  EXPECT_FAILS(ImportBranch(into_, "/part", {.name = "wide"}), StatusCode::kModelMismatch,
               "identity.name");
}

TEST_F(ExportTest, RangesThatAreRefused) {
  const ModelSpec spec = TinyModel();
  Branch chat = Create(spec, "chat");
  const std::vector<TokenId> ids = Tokens(20);
  const std::vector<ContentSpan> spans = {{5, 10, {1, 1}, true}, {12, 18, {2, 2}, false}};
  ASSERT_OK(chat.AppendSync({.tokens = ids, .spans = spans}));
  EXPECT_FAILS(ExportBranch(chat, "/x", {.end = 21}), StatusCode::kInvalidArgument, "20 tokens");
  EXPECT_FAILS(ExportBranch(chat, "/x", {.begin = 7, .end = 6}), StatusCode::kInvalidArgument);
  EXPECT_FAILS(ExportBranch(chat, "/x", {.begin = 4, .kv_begin = 5}), StatusCode::kInvalidArgument,
               "kv_begin");
  EXPECT_FAILS(ExportBranch(chat, "/x", {.end = 7}), StatusCode::kInvalidArgument, "[5, 10)");
  EXPECT_FAILS(ExportBranch(chat, "/x", {.begin = 15}), StatusCode::kInvalidArgument, "[12, 18)");
  EXPECT_FAILS(ExportBranch(chat, ""), StatusCode::kInvalidArgument);
  EXPECT_FAILS(ExportBranch(chat, "/no/such/folder"), StatusCode::kNotFound);
  EXPECT_FAILS(ExportBranch(Branch(), "/x"), StatusCode::kInvalidState);
  EXPECT_FALSE(Exists("/x"));
  EXPECT_FALSE(Exists("/x.tmp"));
  // A span that is not atomic is cut, as in a fork.
  ASSERT_OK(ExportBranch(chat, "/x", {.end = 15}));
  ASSERT_OK_ASSIGN(const ImportInfo brought, ImportBranch(into_, "/x"));
  ASSERT_OK_ASSIGN(const Branch fork, chat.ForkAt(15));
  ExpectSame(fork, brought.branch, spec);
  EXPECT_FAILS(ExportBranch(chat, "/x"), StatusCode::kAlreadyExists, "/x");
  ASSERT_OK(ExportBranch(chat, "/x", {.replace = true}));
  EXPECT_FAILS(ImportBranch(into_, "/x"), StatusCode::kAlreadyExists, "chat");
  EXPECT_FAILS(ImportBranch(into_, "/none"), StatusCode::kNotFound);
}

TEST_F(ExportTest, TheModelMayBeDemanded) {
  const ModelSpec spec = TinyModel();
  Branch chat = Create(spec, "chat");
  Append(chat, spec, 3);
  ASSERT_OK(ExportBranch(chat, "/chat"));
  ModelSpec other = spec;
  other.groups[0].planes[0].heads = 4;
  other.groups[0].planes[1].heads = 4;
  const ModelId id = Register(into_, other);
  EXPECT_FAILS(ImportBranch(into_, "/chat"), StatusCode::kModelMismatch,
               "groups[0].planes[0].heads");
  EXPECT_FAILS(ImportBranch(into_, "/chat", {.model = id}), StatusCode::kModelMismatch,
               "groups[0].planes[0].heads");
  EXPECT_FAILS(ImportBranch(into_, "/chat", {.model = ModelId{99}}), StatusCode::kNotFound);
  EXPECT_TRUE(Names(into_).empty());
}

TEST_F(ExportTest, AFollowerExportsAndDoesNotImport) {
  const ModelSpec spec = TinyModel();
  Branch chat = Create(spec, "chat");
  Append(chat, spec, 40);
  ASSERT_OK(from_.Flush());
  Options options = OptionsIn(sim_);
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(Store follower, Store::Open("/from", options));
  ASSERT_OK_ASSIGN(const Branch seen, follower.FindBranch("chat"));
  ASSERT_OK(ExportBranch(seen, "/chat"));
  EXPECT_FAILS(ImportBranch(follower, "/chat", {.name = "x"}), StatusCode::kReadOnly);
  EXPECT_FAILS(ImportForest(follower, "/chat"), StatusCode::kReadOnly);
  ASSERT_OK(ExportForest(follower, "/all"));
  ASSERT_OK_ASSIGN(const ImportInfo brought, ImportBranch(into_, "/chat"));
  ExpectSame(chat, brought.branch, spec);
}

// Histories drawn from a seed: appends of any size, with and without KV, groups ahead of others,
// forks and rewinds, sealed now and then; each branch goes, and comes back.
TEST_F(ExportTest, DrawnBranchesComeBack) {
  const uint64_t seed = QuickTestSeed();
  const Repeatable repeatable(seed);
  SeededRandom random(seed);
  const ModelSpec spec = EveryRuleModel();
  std::vector<Branch> branches = {Create(spec, "0")};
  for (int step = 0; step < 120; ++step) {
    Branch& branch = branches[random.Below(branches.size())];
    ASSERT_OK_ASSIGN(const uint64_t length, branch.length());
    switch (random.Below(8)) {
      case 0: {
        if (branches.size() == 8) break;
        auto fork =
            branch.ForkAt(random.Below(length + 1), {.name = std::to_string(branches.size())});
        ASSERT_OK(fork);
        branches.push_back(*fork);
        break;
      }
      case 1: ASSERT_OK(branch.Rewind(length - std::min<uint64_t>(length, random.Below(6)))); break;
      case 2: ASSERT_OK(from_.Compact()); break;
      case 3: {
        const SamplerState state = Sampler(static_cast<uint64_t>(step));
        const std::vector<TokenId> ids = Tokens(random.Below(4), 3);
        ASSERT_OK(branch.AppendSync({.tokens = ids, .sampler = &state}));
        break;
      }
      default: {
        const uint64_t count = 1 + random.Below(9);
        const std::vector<TokenId> ids = Tokens(count, static_cast<uint64_t>(step));
        ASSERT_OK_ASSIGN(const BranchInfo info, branch.Info());
        std::vector<std::pair<uint64_t, uint64_t>> ranges;
        for (size_t group = 0; group < spec.groups.size(); ++group) {
          const Retention kind = spec.groups[group].retention.kind;
          uint64_t begin = info.kv_lengths[group];
          const uint64_t end = length + count - std::min(length + count, random.Below(3));
          if (kind == Retention::kPerRequest) {
            ranges.emplace_back(0, begin == 0 && random.Below(3) == 0 ? 1 : 0);
            continue;
          }
          if (kind != Retention::kAll && begin < end) begin += random.Below(end - begin);
          ranges.emplace_back(begin, begin < end ? end - begin : 0);
        }
        KvSet kv(spec, Layout::kContiguous, 0, length + count);
        kv.Write([&](uint64_t at) { return at + random.Below(2); }, 0, length + count);
        Delta delta;
        delta.tokens = ids;
        delta.kv = kv.View(ranges);
        delta.exact = random.Below(3) != 0;
        ASSERT_OK(branch.AppendSync(delta));
        break;
      }
    }
  }
  for (const Branch& branch : branches) {
    const std::string file = "/" + branch.Info()->name;
    SCOPED_TRACE(file);
    ASSERT_OK(ExportBranch(branch, file));
    ASSERT_OK_ASSIGN(const ImportInfo brought, ImportBranch(into_, file));
    ASSERT_NO_FATAL_FAILURE(ExpectSame(branch, brought.branch, spec));
  }
  ASSERT_OK(ExportForest(from_, "/all"));
  Store third = Open("/third");
  ASSERT_OK(ImportForest(third, "/all"));
  for (const Branch& branch : branches) {
    ASSERT_OK_ASSIGN(const Branch copy, third.FindBranch(branch.Info()->name));
    ASSERT_EQ(*branch.length(), *copy.length());
    EXPECT_EQ(*branch.ReadTokens(0, *branch.length()), *copy.ReadTokens(0, *branch.length()));
    for (uint64_t at = 0; at <= *branch.length(); ++at) {
      const auto one = branch.SamplerAt(at), other = copy.SamplerAt(at);
      ASSERT_EQ(one.status().code(), other.status().code()) << at;
      EXPECT_TRUE(!one.ok() ||
                  (*one->sampler == *other->sampler && one->position == other->position));
    }
  }
}

}  // namespace
}  // namespace cairn::testing
