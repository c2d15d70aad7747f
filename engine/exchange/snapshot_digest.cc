// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/snapshot_digest.h"

#include <array>
#include <bit>

namespace cairn::engine {

static_assert(std::endian::native == std::endian::little, "ids and numbers as the file has them");

namespace {

void AddNumber(uint64_t number, BlockDigest* digest) {
  digest->Add(std::as_bytes(std::span(&number, 1)));
}

void AddText(const std::string& text, BlockDigest* digest) {
  AddNumber(text.size(), digest);
  digest->Add(std::as_bytes(std::span(text)));
}

}  // namespace

SnapshotDigest::SnapshotDigest(const ModelSpec& model) {
  const ModelIdentity& identity = model.identity;
  for (const std::string* const text :
       {&identity.name, &identity.revision, &identity.weights_digest, &identity.tokenizer_digest,
        &identity.quantization, &identity.cache_dtype, &model.variant.name,
        &model.variant.digest}) {
    AddText(*text, &digest_);
  }
  AddNumber(std::bit_cast<uint64_t>(model.variant.scale), &digest_);
}

std::string SnapshotDigest::Id(std::span<const ContentSpan> spans) const {
  BlockDigest digest = digest_;
  for (const ContentSpan& span : spans) {
    for (const uint64_t number :
         {span.begin, span.end, span.hash[0], span.hash[1], uint64_t{span.atomic}}) {
      AddNumber(number, &digest);
    }
  }
  return HexOf(digest.Finish());
}

}  // namespace cairn::engine
