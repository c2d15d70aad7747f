// SPDX-License-Identifier: Apache-2.0
//
// Property: a file that is cut, damaged, foreign or hostile is refused, by what is wrong with it,
// and leaves nothing in the store. Method: a real export, changed in one place.
#include <cstring>

#include "base/codec/hash.h"
#include "engine/exchange/hex.h"
#include "engine/exchange/pack.h"
#include "tests/exchange/exchange_test.h"

namespace cairn::testing {
namespace {

using Json = nlohmann::ordered_json;

class ExportBadInputTest : public ExchangeTest {
 protected:
  void SetUp() override {
    ExchangeTest::SetUp();
    Branch chat = Create(spec_, "chat");
    Append(chat, spec_, 20);
    Append(chat, spec_, 4, /*exact=*/false);
    const SamplerState sampler;
    const std::vector<TokenId> ids = Tokens(6, 77);
    const std::vector<ContentSpan> spans = {{24, 26, {1, 2}, false}, {27, 30, {3, 4}, true}};
    ASSERT_OK(chat.AppendSync({.tokens = ids, .sampler = &sampler, .spans = spans}));
    ASSERT_OK(ExportBranch(chat, "/good"));
    ASSERT_OK(ExportBranch(chat, "/base", {.end = 20}));
    ASSERT_OK(ExportBranch(chat, "/part", {.begin = 20}));
    good_ = TornFile::Of(ReadFile("/good"));
  }

  void ExpectRefused(const std::string& text, StatusCode code, const std::string& words) {
    WriteFile("/bad", text);
    EXPECT_FAILS(ImportBranch(into_, "/bad"), code, words);
    EXPECT_TRUE(Names(into_).empty());
  }
  void ExpectRefused(const TornFile& file, StatusCode code, const std::string& words) {
    ExpectRefused(file.Together(), code, words);
  }
  // The header with one place changed.
  template <typename Change>
  void ExpectHeader(const Change& change, StatusCode code, const std::string& words) {
    TornFile file = good_;
    change(file.header);
    ExpectRefused(file, code, words);
  }
  template <typename Change>
  void ExpectText(const std::string& name, const Change& change, StatusCode code,
                  const std::string& words) {
    TornFile file = good_;
    file.ChangeJson(name, change);
    ExpectRefused(file, code, words);
  }

  const ModelSpec spec_ = TinyModel();
  TornFile good_;
};

constexpr StatusCode kBad = StatusCode::kCorruption;
constexpr StatusCode kNone = StatusCode::kInvalidArgument;

TEST_F(ExportBadInputTest, TheFileItself) {
  const std::string whole = ReadFile("/good");
  ExpectRefused("", kNone, "fewer than eight bytes");
  ExpectRefused("1234567", kNone, "fewer than eight bytes");
  ExpectRefused(whole.substr(0, 400), kBad, "is cut");
  ExpectRefused(whole.substr(0, whole.size() - 1), kBad, "the file has");
  ExpectRefused(whole + '\0', kBad, "the file has");
  ExpectRefused(std::string(64, '\0'), kNone, "no JSON begins");
  ExpectRefused("a text that is no such file at all, but longer than eight", kNone, "its header");
  // A header of 100 MB, and of 2^64 - 1 bytes: nothing is allocated for it.
  for (const uint64_t bytes : {uint64_t{100'000'000}, UINT64_MAX}) {
    std::string hostile = whole;
    std::memcpy(hostile.data(), &bytes, sizeof(bytes));
    ExpectRefused(hostile, kNone, std::to_string(bytes));
  }
  ExpectRefused(good_.WithHeader("{"), kBad, "is no JSON");
  ExpectRefused(good_.WithHeader("{}"), kBad, "the tensors end at 0");
  ExpectRefused(good_.WithHeader("{\"a\":[[[[1]]]]}"), kBad, "a list behind \"a\"");
  ExpectRefused(good_.WithHeader("{\"a\":null}"), kBad, "null");
  ExpectRefused(good_.WithHeader("{\"a\":true}"), kBad, "a boolean");
  ExpectRefused(good_.WithHeader("{\"a\":-1}"), kBad, "a negative number");
  ExpectRefused(good_.WithHeader("{\"a\":1.5}"), kBad, "a fraction");
  ExpectRefused(good_.WithHeader("{\"a\":7}"), kBad, "a number");
  ExpectRefused(good_.WithHeader("{\"a\":\"b\"}"), kBad, "a text");
  ExpectRefused(good_.WithHeader("{\"__metadata__\":{\"a\":{}}}"), kBad, "an object");
  ExpectRefused(good_.WithHeader("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}"), kBad, "twice");
  ExpectRefused(good_.WithHeader("{\"__metadata__\":{\"\":\"\"}}"), kBad, "an empty name");
  ExpectRefused(good_.WithHeader("{\"a\":{\"dtype\":\"U8\",\"other\":1}}"), kBad, "\"other\"");
  ExpectRefused(good_.WithHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}"), kBad, "lacks");
  ExpectRefused(good_.WithHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],"
                                 "\"data_offsets\":[0,1]}}"),
                kBad, "a fourth field");
  ExpectRefused(good_.WithHeader("{\"a\":{\"shape\":[1,1,1,1,1,1,1,1,1]}}"), kBad, "a number");
}

TEST_F(ExportBadInputTest, Tensors) {
  const std::string key = "kv.all.0.k";
  ASSERT_TRUE(good_.header.contains("tokens"));
  std::string name;
  for (const auto& [tensor, about] : good_.header.items()) {
    if (tensor.starts_with("kv.")) name = tensor;
  }
  const auto at = [&](Json& header) -> Json& { return header[name]["data_offsets"]; };
  // Overlapping, with a gap, misaligned, beyond the file, backwards.
  ExpectHeader([&](Json& h) { at(h) = h["tokens"]["data_offsets"]; }, kBad, "its shape");
  ExpectHeader(
      [&](Json& h) {
        const uint64_t begin = at(h)[0], end = at(h)[1];
        at(h) = {begin - 2, end - 2};
      },
      kBad, "within the one before");
  ExpectHeader(
      [&](Json& h) {
        const uint64_t begin = at(h)[0], end = at(h)[1];
        at(h) = {begin - 1, end - 1};
      },
      kBad, "no multiple of 2");
  ExpectHeader(
      [&](Json& h) {
        h["tokens"]["data_offsets"] = {0, 4};
        h["tokens"]["shape"] = {1};
      },
      kBad, "behind a gap");
  ExpectHeader([&](Json& h) { at(h)[1] = UINT64_MAX; }, kBad, "bytes of tensors");
  ExpectHeader([&](Json& h) { at(h) = {8, 4}; }, kBad, "lies at");
  // Huge, of another type or shape, missing, foreign.
  ExpectHeader(
      [&](Json& h) {
        h[name]["shape"] = {uint64_t{1} << 40, uint64_t{1} << 40};
      },
      kBad, "larger than a file can be");
  ExpectHeader([&](Json& h) { h[name]["shape"][1] = 23; }, kBad, "its shape");
  ExpectHeader([&](Json& h) { h[name]["dtype"] = "F16"; }, kBad, "type and shape");
  ExpectHeader([&](Json& h) { h[name]["dtype"] = "X9"; }, kBad, "\"X9\"");
  ExpectHeader(
      [&](Json& h) {
        h["kv.all.0.other"] = h[name];
        h.erase(name);
      },
      kBad, "is missing");
  ExpectHeader(
      [&](Json& h) {
        const uint64_t end = good_.data.size();
        h["extra"] = {{"dtype", "U8"}, {"shape", {0}}, {"data_offsets", {end, end}}};
      },
      kBad, "\"extra\" is foreign");
  TornFile fewer = good_;
  fewer.header.erase("states");
  ExpectRefused(fewer, kBad, "the tensors end at");
}

TEST_F(ExportBadInputTest, WhatItSaysOfItself) {
  const auto metadata = [](const std::string& field, const std::string& value) {
    return [=](Json& header) { header["__metadata__"][field] = value; };
  };
  const auto without = [](const std::string& field) {
    return [=](Json& header) { header["__metadata__"].erase(field); };
  };
  ExpectHeader(without("format"), kNone, "no exported branch");
  ExpectHeader(metadata("format", "pt"), kNone, "no exported branch");
  ExpectHeader(metadata("version", "2"), StatusCode::kUnsupportedFormat, "version \"2\"");
  for (const char* field : {"sequence_length", "snapshot_id", "branch", "model", "spans", "kv_data",
                            "provenance", "tokens", "states"}) {
    ExpectHeader(without(field), kBad, std::string(field) + " is missing");
  }
  ExpectHeader(metadata("sequence_length", "x"), kBad, "sequence_length is no JSON");
  ExpectHeader(metadata("sequence_length", "-1"), kBad, "sequence_length is no number");
  ExpectHeader(metadata("sequence_length", "18446744073709551615"), kBad, "sequence_length");
  ExpectHeader(metadata("sequence_length", "29"), kBad, "spans[1]");
  ExpectHeader(metadata("sequence_length", "31"), kBad, "\"tokens\" has not the type and shape");
  ExpectHeader(metadata("snapshot_id", "0"), kBad, "32 digits");
  ExpectHeader(metadata("base_snapshot_id", std::string(32, '0')), kBad, "start_pos is missing");
  ExpectHeader(
      [&](Json& h) {
        h["__metadata__"]["base_snapshot_id"] = std::string(32, '0');
        h["__metadata__"]["start_pos"] = "31";
        h["__metadata__"]["end_pos"] = "30";
      },
      kBad, "start_pos and end_pos");
  ExpectHeader(metadata("model", "[1,2"), kBad, "model is no JSON");
  ExpectHeader(metadata("model", "[" + std::string(2'000'000, ',')), kBad, "values");
  ExpectHeader(metadata("spans", "{}"), kBad, "spans is no array");
  ExpectHeader(metadata("model", "{}"), StatusCode::kInvalidArgument, "identity.name");
  ExpectText(
      "model", [](Json& m) { m["groups"][0]["layers"] = -2; }, kBad, "model.groups[0].layers");
  ExpectText(
      "model", [](Json& m) { m["groups"][0]["layers"] = uint64_t{1} << 40; }, kBad,
      "model.groups[0].layers");
  ExpectText(
      "model", [](Json& m) { m["groups"][0]["layers"] = 20; }, kBad, "the model has 40 tensors");
  ExpectText(
      "model", [](Json& m) { m["groups"][0]["layers"] = 65536; }, kBad, "more than 4 MiB of KV");
  ExpectText(
      "model", [](Json& m) { m["groups"][0]["planes"][0]["dtype"] = 8; }, kBad, "dtype");
  ExpectText(
      "model", [](Json& m) { m["groups"][0]["planes"] = 5; }, kBad, "planes is no array");
  ExpectText(
      "model", [](Json& m) { m["groups"][0]["inv_freq"] = {"x"}; }, kBad, "inv_freq");
  ExpectText(
      "model", [](Json& m) { m["groups"][0]["optional"] = 0; }, kBad, "optional");
  ExpectText(
      "model", [](Json& m) { m["variant"]["scale"] = "1"; }, kBad, "variant.scale");
  ExpectText(
      "model", [](Json& m) { m["identity"] = 1; }, kBad, "identity is no object");
  ExpectText(
      "model", [](Json& m) { m["identity"]["revision"] = 1; }, kBad, "revision is no text");
  ExpectText(
      "model",
      [](Json& m) {
        m["identity"]["revision"] = {{"hex", "0g"}};
      },
      kBad, "revision is no text");
  ExpectText(
      "model",
      [](Json& m) {
        m["identity"]["revision"] = {{"hex", "abc"}};
      },
      kBad, "revision is no text");
  ExpectText(
      "model", [](Json& m) { m["groups"][0]["planes"][0]["row_bytes"] = 16; }, kBad,
      "type and shape");
  ExpectText(
      "spans", [](Json& s) { s[0]["hash"] = {1}; }, kBad, "hash");
  ExpectText(
      "spans", [](Json& s) { s[1]["begin"] = 25; }, kBad, "spans[1]");
  ExpectText(
      "spans", [](Json& s) { s[0]["hash"][0] = 9; }, kBad, "snapshot_id is not that of");
  ExpectText(
      "branch", [](Json& b) { b["keep"]["priority"] = 300; }, kBad, "keep.priority");
  ExpectText(
      "branch", [](Json& b) { b["name"] = std::string(300, 'x'); }, kNone, "300");
}

TEST_F(ExportBadInputTest, KvAndItsDigests) {
  const auto group = [](Json& kv) -> Json& { return kv["groups"][0]; };
  ExpectText(
      "kv_data", [](Json& kv) { kv["digest"] = "md5"; }, StatusCode::kUnsupportedFormat, "\"md5\"");
  ExpectText(
      "kv_data", [](Json& kv) { kv["groups"] = Json::array(); }, kBad, "0 groups");
  ExpectText(
      "kv_data", [&](Json& kv) { group(kv)["digest_positions"] = 3; }, kBad, "power of two");
  ExpectText(
      "kv_data", [&](Json& kv) { group(kv)["digest_positions"] = 8192; }, kBad, "power of two");
  ExpectText(
      "kv_data", [&](Json& kv) { group(kv).erase("positions"); }, kBad, "positions");
  ExpectText(
      "kv_data", [&](Json& kv) { group(kv)["positions"] = 1; }, kBad, "no list");
  ExpectText(
      "kv_data", [&](Json& kv) { group(kv)["positions"][0] = {1}; }, kBad, "no pair");
  ExpectText(
      "kv_data",
      [&](Json& kv) {
        group(kv)["positions"][0] = {0, 99};
      },
      kBad, "[0, 99)");
  ExpectText(
      "kv_data",
      [&](Json& kv) {
        group(kv)["positions"] = Json::parse("[[0,9],[9,24]]");
      },
      kBad, "[9, 24)");
  ExpectText(
      "kv_data",
      [&](Json& kv) {
        group(kv)["positions"] = Json::parse("[[0,9],[10,25]]");
      },
      kBad, "a gap that it cannot have");
  ExpectText(
      "kv_data",
      [&](Json& kv) {
        group(kv)["positions"] = Json::parse("[[3,27]]");
      },
      StatusCode::kConflict, "the file from 3 on");
  ExpectText(
      "kv_data", [&](Json& kv) { group(kv)["tensors"] = Json::object(); }, kBad, "no digest of");
  ExpectText(
      "kv_data",
      [&](Json& kv) {
        for (auto& [name, digest] : group(kv)["tensors"].items()) digest = "12";
      },
      kBad, "32 digits");
  ExpectText(
      "kv_data",
      [&](Json& kv) {
        for (auto& [name, digest] : group(kv)["tensors"].items()) {
          digest = std::string(32, '0');
        }
      },
      kBad, "has another digest");
  ExpectText(
      "tokens", [](Json& t) { t["digest"] = std::string(32, '0'); }, kBad, "\"tokens\"");
  ExpectText(
      "tokens", [](Json& t) { t = 1; }, kBad, "tokens has no digest");
  ExpectText(
      "states", [](Json& t) { t["digest"] = std::string(32, '0'); }, kBad, "\"states\"");
  ExpectText(
      "provenance",
      [](Json& p) {
        p["approximate"][0] = Json::parse("[[2,1]]");
      },
      kBad, "[2, 1)");
  ExpectText(
      "provenance", [](Json& p) { p["approximate"].push_back(Json::array()); }, kBad,
      "too many groups");
}

// Any byte of the content that is wrong is noticed.
TEST_F(ExportBadInputTest, EveryByteIsUnderADigest) {
  for (size_t at = 0; at < good_.data.size(); at += 7) {
    TornFile file = good_;
    file.data[at] = static_cast<char>(file.data[at] ^ 1);
    SCOPED_TRACE(at);
    ExpectRefused(file, kBad, "digest");
  }
  // A part, which is checked before its branch changes.
  ASSERT_OK(ImportBranch(into_, "/base"));
  ASSERT_OK_ASSIGN(const Branch copy, into_.FindBranch("chat"));
  const TornFile part = TornFile::Of(ReadFile("/part"));
  for (size_t at = 0; at < part.data.size(); at += 7) {
    TornFile file = part;
    file.data[at] = static_cast<char>(file.data[at] ^ 1);
    WriteFile("/bad", file.Together());
    EXPECT_FAILS(ImportBranch(into_, "/bad"), kBad, "digest");
    ASSERT_EQ(20U, *copy.length());
  }
  ASSERT_OK(ImportBranch(into_, "/part"));
  EXPECT_EQ(30U, *copy.length());
}

// States of a file that are well sealed, and are none that a branch can take.
TEST_F(ExportBadInputTest, StatesThatCannotBe) {
  const auto with_states = [&](const std::vector<engine::PackRecord>& records,
                               const std::string& more = "") {
    TornFile file = good_;
    const uint64_t begin = file.header["states"]["data_offsets"][0];
    file.data.resize(begin);
    std::string bytes;
    for (const engine::PackRecord& record : records) {
      const auto encoded = record.Encode();
      bytes.append(reinterpret_cast<const char*>(encoded.data()), encoded.size());
    }
    bytes += more;
    file.data += bytes;
    file.header["states"]["shape"] = {bytes.size()};
    file.header["states"]["data_offsets"] = {begin, begin + bytes.size()};
    engine::BlockDigest digest;
    digest.Add(std::as_bytes(std::span(bytes)));
    file.ChangeJson("states", [&](Json& s) { s["digest"] = engine::HexOf(digest.Finish()); });
    return file;
  };
  const auto state = [](uint64_t position, const std::string& field = "metadata.bytes",
                        engine::PackValue value = engine::PackBytes{}) {
    engine::PackRecord record;
    record.Set("position", position);
    record.Set(field, std::move(value));
    return record;
  };
  WriteFile("/bad", with_states({state(3), state(30)}).Together());
  ASSERT_OK_ASSIGN(const ImportInfo good, ImportBranch(into_, "/bad"));
  EXPECT_EQ(3U, good.branch.MetadataAt(5)->position);
  ASSERT_OK(Branch(good.branch).Drop());
  ExpectRefused(with_states({state(31)}), kBad, "state at position 31");
  ExpectRefused(with_states({state(4), state(4)}), kBad, "state at position 4");
  ExpectRefused(with_states({state(29)}), kBad, "inside the content span [27, 30)");
  ExpectRefused(with_states({state(3, "position", std::string("3"))}), kBad, "no number");
  ExpectRefused(with_states({state(3, "sampler.generator", uint64_t{4})}), kBad, "impossible");
  ExpectRefused(with_states({state(3, "sampler.generator", true)}), kBad, "no number");
  ExpectRefused(with_states({}, "\x93\x01\x02\x03"), kBad, "no record begins");
  ExpectRefused(with_states({}, std::string(3, '\x81')), kBad, "states");
  ExpectRefused(with_states({}, "\xde\xff\xff"), kBad, "65535 fields");
  ExpectRefused(with_states({}, "\x82\xa1k\x01\xa1k\x02"), kBad, "twice");
  ExpectRefused(with_states({}, "\x81\x01\x01"), kBad, "no name");
  ExpectRefused(with_states({}, "\x81\xa1k\x91\x01"), kBad, "a type that no record has");
  ExpectRefused(with_states({}, "\x81\xa1k\xc6\xff\xff\xff\xff"), kBad, "4294967295 bytes");
  ExpectRefused(with_states({}, "\x81\xa1k"), kBad, "beyond the last byte");
}

TEST_F(ExportBadInputTest, Forests) {
  ASSERT_OK(from_.FindBranch("chat")->ForkAt(10, {.name = "fork"}));
  ASSERT_OK(ExportForest(from_, "/all"));
  const std::string whole = ReadFile("/all");
  const auto expect = [&](const std::string& text, StatusCode code, const std::string& words) {
    WriteFile("/bad", text);
    EXPECT_FAILS(ImportForest(into_, "/bad"), code, words);
    EXPECT_TRUE(Names(into_).empty());
  };
  expect("", kNone, "no exported forest");
  expect(ReadFile("/good"), kNone, "no exported forest");
  expect(whole.substr(0, 20), kNone, "no exported forest");
  for (size_t at = 30; at < whole.size(); at += 5) {
    std::string text = whole;
    text[at] = static_cast<char>(text[at] ^ 1);
    expect(text, kBad, "is cut, or damaged");
    expect(whole.substr(0, at), kBad, "is cut");
  }
  ExpectRefused(whole, kNone, "no exported branch");
  // Records that are well sealed, and make no forest.
  using engine::PackRecord;
  const auto record = [](const std::string& kind,
                         std::vector<std::pair<std::string, engine::PackValue>> fields = {}) {
    PackRecord made;
    made.Set("record", kind);
    for (auto& [field, value] : fields) made.Set(field, value);
    return made;
  };
  const auto sealed = [&](const std::vector<PackRecord>& records) {
    std::vector<std::byte> bytes;
    const auto add = [&](const PackRecord& one) {
      const auto encoded = one.Encode();
      bytes.insert(bytes.end(), encoded.begin(), encoded.end());
    };
    for (const PackRecord& one : records) add(one);
    engine::BlockDigest digest;
    digest.Add(bytes);
    const auto end = engine::BytesOf(digest.Finish());
    PackRecord last;
    last.Set("digest", engine::PackBytes(end.begin(), end.end()));
    add(last);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const PackRecord first = record("forest", {{"version", uint64_t{1}}});
  const PackRecord model =
      record("model",
             {{"model", uint64_t{1}}, {"spec", std::string(R"({"identity":{"name":"tokens"}})")}});
  const auto branch = [&](std::vector<std::pair<std::string, engine::PackValue>> more) {
    more.emplace_back("model", uint64_t{1});
    return record("branch", std::move(more));
  };
  const uint64_t one = 1;
  expect(sealed({record("forest", {{"version", uint64_t{2}}})}), StatusCode::kUnsupportedFormat,
         "version 2");
  expect(sealed({record("other")}), kNone, "no exported forest");
  expect(sealed({first, record("what")}), kBad, "\"what\" where none belongs");
  expect(sealed({first, record("ids")}), kBad, "\"ids\" where none belongs");
  expect(sealed({first, record("model", {{"spec", std::string("x")}})}), kBad, "no JSON");
  expect(sealed({first, record("model", {{"spec", std::string("{}")}})}), kNone, "identity.name");
  expect(sealed({first, branch({})}), kBad, "model 1 is not there");
  expect(sealed({first, model, branch({{"branch", one}, {"name", std::string("a")}}),
                 branch({{"branch", one}})}),
         kBad, "is there twice");
  expect(sealed({first, model, branch({{"length", one}})}), kBad, "ids from 0 on are missing");
  expect(sealed({first, model, branch({{"fork", one}, {"position", one}, {"length", one}})}), kBad,
         "which cannot be");
  expect(sealed({first, model, branch({{"priority", uint64_t{256}}})}), kBad, "priority");
  expect(sealed({first, model, branch({{"length", one}}),
                 record("ids", {{"begin", one}, {"ids", engine::PackBytes(4)}})}),
         kBad, "not those that follow");
  expect(sealed({first, model, branch({{"length", one}}),
                 record("ids", {{"ids", engine::PackBytes(8)}})}),
         kBad, "more ids than tokens");
  expect(sealed({first, model, branch({{"length", one}}), record("span", {{"end", uint64_t{2}}})}),
         kBad, "a span does not lie");
  expect(
      sealed({first, model, branch({{"name", std::string("x")}, {"namespace", std::string("y")}}),
              branch({{"branch", one}, {"name", std::string("z")}, {"length", one}})}),
      kBad, "ids from 0 on are missing");
  EXPECT_TRUE(Names(into_, "y").empty());
  // A name that is taken; then all of it.
  ASSERT_OK(into_.CreateBranch(Register(into_, spec_), {.name = "fork"}));
  EXPECT_FAILS(ImportForest(into_, "/all"), StatusCode::kAlreadyExists, "\"fork\"");
  EXPECT_EQ(std::vector<std::string>{"fork"}, Names(into_));
  ASSERT_OK(into_.FindBranch("fork")->Drop());
  ASSERT_OK(ImportForest(into_, "/all"));
  EXPECT_EQ((std::vector<std::string>{"chat", "fork"}), Names(into_));
  EXPECT_FAILS(ImportForest(into_, "/none"), StatusCode::kNotFound);
  EXPECT_FAILS(ImportForest(into_, ""), kNone);
}

}  // namespace
}  // namespace cairn::testing
