"""Claims of a published study on scaling, checked with measured or published training times.

The study is D. Cortes, C. Juiz, B. Bermejo, "Estudio de la eficiencia en la escalabilidad de GPUs para el
entrenamiento de Inteligencia Artificial" (arXiv:2509.03263). Its abstract states three claims (`outcomes.Claim`).

scaling         input of all checks: times, speedups and samples to target by number of workers, with random draws
outcomes        decides whether a claim is confirmed, contradicted, too close to call or not testable
sentences       one sentence for each outcome, with its numbers
run_claims      checks of the speedup curves of a run; `analysis.mlperf.chapters.claims` checks published results
"""
