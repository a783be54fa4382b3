#include "core/ops.h"
#include "tests/testing.h"

using namespace testing;

TEST(sample_every_filter) {
  constexpr int64_t kRows = 9;
  for (const int64_t vocab : {1, 15, 17, 1000})
    same_for_all_threads<int64_t>(kRows, [&](Session& session, const Buffer<int64_t>& tokens) {
      Buffer<float> logits(kRows * vocab), temperature(kRows), top_p(kRows), min_p(kRows), logprobs(kRows);
      Buffer<int64_t> top_k(kRows), positions(kRows);
      Buffer<uint64_t> seeds(kRows);
      Numbers(30).fill(logits);
      for (int64_t r = 0; r < kRows; ++r) {
        temperature[r] = r % 3 == 0 ? 0.0f : 0.7f;
        top_p[r] = r % 2 ? 0.9f : 1.0f;
        min_p[r] = r % 4 == 1 ? 0.05f : 0.0f;
        top_k[r] = r % 5;
        seeds[r] = static_cast<uint64_t>(r) << 40, positions[r] = r * 7;
      }
      sf_sample_args args{
          logits.data(),    temperature.data(), top_p.data(),    min_p.data(), top_k.data(), seeds.data(),
          positions.data(), tokens.data(),      logprobs.data(), kRows,        vocab,        vocab};
      CHECK(session.run("sample", args) == sf::kOk);
      for (int64_t r = 0; r < kRows; ++r) CHECK(tokens[r] >= 0 && tokens[r] < vocab && logprobs[r] <= 0);
      args.temperature = nullptr;
      CHECK(session.run("sample", args) == sf::kNullPointer);
    });
}

TEST(sample_rows_without_a_finite_logit) {
  Session session(2);
  constexpr int64_t kVocab = 21;
  Buffer<float> logits(2 * kVocab), zeros(2), ones(2), logprobs(2);
  ones[0] = ones[1] = 1;
  for (int64_t i = 0; i < kVocab; ++i) logits[i] = -__builtin_inff(), logits[kVocab + i] = __builtin_nanf("");
  Buffer<int64_t> top_k(2), positions(2), tokens(2);
  Buffer<uint64_t> seeds(2);
  sf_sample_args args{
      logits.data(), ones.data(),     ones.data(), zeros.data(), top_k.data(), seeds.data(), positions.data(),
      tokens.data(), logprobs.data(), 2,           kVocab,       kVocab};
  CHECK(session.run("sample", args) == sf::kOk);
  CHECK(tokens[0] == -1);
  for (int64_t r = 0; r < 2; ++r) CHECK(tokens[r] >= -1 && tokens[r] < kVocab);
}

TEST(top_logprobs_up_to_the_whole_vocabulary) {
  constexpr int64_t kRows = 5;
  for (const int64_t vocab : {1, 17, 300})
    for (const int64_t count : {int64_t(1), (vocab + 1) / 2, vocab})
      same_for_all_threads<int64_t>(kRows * count, [&](Session& session, const Buffer<int64_t>& ids) {
        Buffer<float> logits(kRows * vocab), logprobs(kRows * count);
        Numbers(31).fill(logits);
        sf_top_logprobs_args args{logits.data(), ids.data(), logprobs.data(), kRows, vocab, vocab, count};
        CHECK(session.run("top_logprobs", args) == sf::kOk);
        for (int64_t i = 0; i < ids.size(); ++i) CHECK(ids[i] >= 0 && ids[i] < vocab);
        args.count = vocab + 1;
        CHECK(session.run("top_logprobs", args) == sf::kBadShape);
      });
}
